"""The simulator's description, models, faults and recorded requests -> JSON pages."""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

from moonshim.simulator.fault import Fault
from moonshim.simulator.host.behaviours import HostBehaviour
from moonshim.simulator.host.models import MODELS, generation_of
from moonshim.simulator.http.paths import OWN_PATHS, PathKind, api_paths
from moonshim.simulator.http.recorded import RecordedRequest
from moonshim.simulator.request import Json, Wire
from moonshim.simulator.settings import SimulatorSettings

__all__ = ["about", "fault_page", "model_page", "models_page", "quota_page", "request_page"]

_BORN: Final = 1_752_192_000
"""Release date of K2; all models use it."""
_BORN_DATE: Final = "2025-07-11T00:00:00Z"
_QUOTA: Final = {
    "limit_5h": (0.12, 5 * 3600),
    "limit_7d": (0.34, 7 * 86400),
    "limit_month_total": (0.56, 30 * 86400),
    "limit_month_code": (0.5, 30 * 86400),
}
"""By the field of `/usages`: the used part, and the seconds after which it starts again."""


def about(settings: SimulatorSettings, behaviour: HostBehaviour, missing: Container[PathKind]) -> Json:
    return {
        "name": "moonshim simulator",
        "version": version("moonshim"),
        "about": "A simulated Kimi API: a script answers, not a model. Accepts any API key unless one is configured.",
        "behaviour": {"name": behaviour.name, "about": behaviour.about},
        "nature": {"name": behaviour.name, "about": behaviour.about},  # the former name, for one release
        "answers": settings.model or settings.scenario,
        "faults": list(settings.faults),
        "chaos": settings.chaos,
        "seed": settings.seed,
        "paths": [*OWN_PATHS, *api_paths(missing)],
    }


def models_page(settings: SimulatorSettings, wire: Wire) -> Json:
    entries = [_model(name, wire) for name in (*settings.models, *MODELS)]
    if wire == "anthropic":
        first, last = entries[0]["id"], entries[-1]["id"]
        return {"data": entries, "has_more": False, "first_id": first, "last_id": last}
    return {"object": "list", "data": entries}


def model_page(name: str, settings: SimulatorSettings, wire: Wire) -> Json | None:
    """None: there is no such model."""
    base = name.partition("+")[0]
    return None if generation_of(base, settings.models) is None else _model(name, wire)


def _model(name: str, wire: Wire) -> Json:
    if wire == "anthropic":
        return {"type": "model", "id": name, "display_name": name, "created_at": _BORN_DATE}
    return {"id": name, "object": "model", "created": _BORN, "owned_by": "moonshot"}


def quota_page(now: float) -> Json:
    """The used part of a subscription, with the fields that kimi-code reads. No response of the real host was seen."""

    def entry(used: float, period: int) -> Json:
        reset = datetime.fromtimestamp((now // period + 1) * period, UTC)
        return {"used_ratio": used, "reset_time": reset.strftime("%Y-%m-%dT%H:%M:%SZ")}

    return {"usages": {name: entry(*row) for name, row in _QUOTA.items()}}


def request_page(requests: Iterable[RecordedRequest]) -> Json:
    """The newest last, with the verdict on each."""
    return {"requests": [_request(recorded) for recorded in requests]}


def _request(recorded: RecordedRequest) -> Json:
    request, intended = recorded.request, recorded.intended
    return {
        "number": recorded.number,
        "wire": recorded.wire,
        "place": recorded.place,
        "model": recorded.asked_model,
        "status": recorded.status,
        "problem": recorded.problem,
        "faults": list(recorded.faults),
        "missed": list(recorded.missed),
        "imitated": recorded.imitated,
        "round": recorded.round,
        "stream": request.stream if request else None,
        "thinking": request.thinking if request else None,
        "messages": len(request.turns) if request else None,
        "tools": len(request.tools) if request else None,
        "called": [call.name for call in intended.calls] if intended else [],
    }


def fault_page(faults: Iterable[Fault]) -> Json:
    return {
        "faults": [
            {
                "name": fault.name,
                "group": fault.group,
                "about": fault.about,
                "seen": fault.seen,
                "wires": list(fault.wires),
                "families": list(fault.families),
                "ways": list(fault.ways),
                "needs": fault.needs,
                "fatal": fault.fatal,
            }
            for fault in faults
        ]
    }
