"""An OpenTelemetry collector on a socket: it decodes what is exported to it, as protobuf, into plain values."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.support.gateway.hosts import Host, HostRequest, Peer, whole

__all__ = ["Collector", "SpanSeen"]

_KINDS: Final = {trace_pb2.Span.SPAN_KIND_SERVER: "SERVER", trace_pb2.Span.SPAN_KIND_CLIENT: "CLIENT"}


class SpanSeen(Struct, frozen=True):
    """A span as it came over the wire."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    is_error: bool
    description: str
    seconds: float
    resource: dict[str, Any]

    def is_parent_in(self, asked: HostRequest) -> bool:
        """Whether a host that got this request knows this span, which is sampled, as the parent of its own."""
        *parent, flags = asked.headers["traceparent"].split("-")
        return parent == ["00", self.trace_id, self.span_id] and int(flags, 16) & 1 == 1


class Collector(Host):
    """Accepts spans at /v1/traces, or answers with another status."""

    def __init__(self, *, status: str = "200 OK") -> None:
        super().__init__(self._take)
        self._status = status
        self.spans: list[SpanSeen] = []

    async def _take(self, peer: Peer, asked: HostRequest) -> None:
        if self._status.startswith("200"):
            assert asked.path.endswith("/v1/traces"), asked.path
            assert asked.headers["content-type"] == "application/x-protobuf"
            for group in ExportTraceServiceRequest.FromString(asked.body).resource_spans:
                resource = _attributes(group.resource.attributes)
                self.spans += [_span(span, resource) for scope in group.scope_spans for span in scope.spans]
        await peer.send(whole(b"", status=self._status, headers=("content-type: application/x-protobuf",)))

    def of(self, kind: str) -> list[SpanSeen]:
        """The spans of one kind, in the order in which they started."""
        return [span for span in self.spans if span.kind == kind]


def _span(span: trace_pb2.Span, resource: dict[str, Any]) -> SpanSeen:
    return SpanSeen(
        span.name,
        _KINDS[span.kind],
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _attributes(span.attributes),
        [(event.name, _attributes(event.attributes)) for event in span.events],
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        span.status.message,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    given: list[KeyValue] = list(pairs)
    return {pair.key: _value(pair.value) for pair in given}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)
