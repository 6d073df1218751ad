"""An objection -> the answer that a host refuses with: its status, and its body in the host's own shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from moonshim.simulator.fault import Status
from moonshim.simulator.question import Json, Wire
from moonshim.simulator.rules.objection import Objection

if TYPE_CHECKING:
    from moonshim.simulator.natures import Nature

__all__ = ["NO_KEY", "OTHER_AGENT", "TOO_LARGE", "no_model", "no_path", "not_json", "refusal"]

NO_KEY: Final = Objection("Invalid Authentication", status=401, kind="invalid_authentication_error")
OTHER_AGENT: Final = Objection(
    "Kimi For Coding is currently only available for Coding Agents such as Kimi CLI, Claude Code, Roo Code, Kilo Code, "
    "etc.",
    status=403,
    kind="access_terminated_error",
)
TOO_LARGE: Final = Objection("Request exceeds the maximum size", status=413)


def no_model(name: str) -> Objection:
    return Objection(f"Not found the model {name} or Permission denied", status=404, kind="resource_not_found_error")


def no_path(path: str) -> Objection:
    return Objection(f"method not found: {path}", status=404, kind="resource_not_found_error")


def not_json(problem: str) -> Objection:
    return Objection(f"Invalid request: the body is not JSON: {problem}")


def refusal(objection: Objection, *, wire: Wire, nature: Nature) -> Status:
    """What is sent instead of an answer.

    >>> from moonshim.simulator.natures import NATURES
    >>> refusal(Objection("no"), wire="openai_chat", nature=NATURES["moonshot"]).body
    {'error': {'message': 'no', 'type': 'invalid_request_error'}}
    """
    body = _SHAPES[nature.errors](objection, wire)
    return Status(status=objection.status, headers={"content-type": "application/json"}, body=body)


_Shape: TypeAlias = Callable[[Objection, Wire], Json]
_VLLM: Final = {400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError", 413: "BadRequestError"}


def _moonshot(objection: Objection, wire: Wire) -> Json:
    if wire == "anthropic":
        return {"error": {"type": objection.kind, "message": objection.message}, "type": "error"}
    return {"error": {"message": objection.message, "type": objection.kind}}


def _siliconflow(objection: Objection, wire: Wire) -> Json:
    return {"code": 20015, "message": objection.message, "data": None}


def _openrouter(objection: Objection, wire: Wire) -> Json:
    metadata = {"raw": json.dumps(_moonshot(objection, "openai_chat")), "provider_name": "Moonshot AI"}
    return {"error": {"message": "Provider returned error", "code": objection.status, "metadata": metadata}}


def _vllm(objection: Objection, wire: Wire) -> Json:
    kind = _VLLM.get(objection.status, "InternalServerError")
    return {"error": {"message": objection.message, "type": kind, "param": None, "code": objection.status}}


_SHAPES: Final[dict[str, _Shape]] = {
    "moonshot": _moonshot,
    "kimi-coding": _moonshot,
    "siliconflow": _siliconflow,
    "openrouter": _openrouter,
    "vllm": _vllm,
}
