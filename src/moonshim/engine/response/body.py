"""Mends a whole (non-streaming) Chat response, by the very rules that mend a stream."""

from __future__ import annotations

from typing import Any, Unpack

from msgspec import Struct

from moonshim.engine.plan import Plan, PlanArguments, plan_for
from moonshim.engine.response.pipeline import ResponsePipeline
from moonshim.engine.values.conversation import Message, Usage
from moonshim.engine.values.events import Failed, Finished, Repaired
from moonshim.errors import InvalidInput

__all__ = ["Mended", "mend_response", "with_client_model"]


class Mended(Struct, frozen=True):
    """A mended response, and its repairs."""

    body: dict[str, Any]
    repairs: list[Repaired]
    message: Message = Message("assistant")
    """The answer of the first choice."""
    ending: Finished | Failed | None = None
    repair_counts: dict[str, int] = {}
    """How often each rule acted; `repairs` keeps the first few hundred."""
    usage: Usage | None = None
    """What the answer cost, in numbers that mean the same for every host."""
    reasoning_field: str | None = None
    """The field in which a Chat host sends reasoning, and wants it back. None: no reasoning, or in copies."""


def mend_response(body: dict[str, Any], **request: Unpack[PlanArguments]) -> Mended:
    """A response as its host gave it -> as the client expects it. The body that was passed stays as it is.

    Where a stream would end in an error event, the body gets an `error` beside what
    was said, and the choice has no finish reason. With the `plan` of `prepare_request`, the
    body is read in the host's dialect and written in the client's, under the name of the model that
    the client asked for. Without one both are Chat, and the request is described by `model` and, where known, `tools`,
    `tool_choice`, `history` and `options`.
    """
    if not isinstance(body, dict):
        raise InvalidInput(f"body must be a dict, not {type(body).__name__}", field="body")
    plan = plan_for(**request)
    pipeline: ResponsePipeline[None] = ResponsePipeline(plan)
    mended = pipeline.mend_body(body if plan.translates else with_client_model(body, plan))
    log = pipeline.log
    return Mended(
        mended,
        log.repairs,
        pipeline.message(),
        pipeline.ending(),
        dict(log.counts),
        pipeline.normalized_usage,
        pipeline.reasoning_field,
    )


def with_client_model(body: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """A chunk or a whole response under the name of the model that the client asked for."""
    if plan.client is None or body.get("error") or body.get("model", plan.reply.model) == plan.reply.model:
        return body
    return body | {"model": plan.reply.model}
