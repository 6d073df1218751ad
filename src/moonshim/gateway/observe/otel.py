"""`[otel]` -> the exporter of traces, if it is configured: without it, no module of OpenTelemetry is imported."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from moonshim.config import OtelExport
from moonshim.errors import InvalidInput

if TYPE_CHECKING:
    from moonshim.gateway.observe.otel_spans import Telemetry

__all__ = ["open_telemetry", "otel_problem"]

_MISSING: Final = "`[otel]` requires the OpenTelemetry packages; install moonshim[otel]"


def otel_problem(settings: OtelExport | None) -> str | None:
    """Why `open_telemetry` would fail with these settings."""
    if settings is None:
        return None
    try:
        return (
            None if find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http") else _MISSING
        )
    except ModuleNotFoundError:  # a parent of these packages
        return _MISSING


def open_telemetry(settings: OtelExport | None) -> Telemetry | None:
    """What creates and exports spans; None: nobody wants any. Raises `InvalidInput` without the packages."""
    if settings is None:
        return None
    if (problem := otel_problem(settings)) is not None:
        raise InvalidInput(problem, field="otel")
    from moonshim.gateway.observe.otel_spans import Telemetry

    return Telemetry(settings)
