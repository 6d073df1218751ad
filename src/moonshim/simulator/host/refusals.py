"""An objection -> the response that a host refuses with: its status, and its body in the host's own words and shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from moonshim.simulator.fault import Status
from moonshim.simulator.request import Json, Wire
from moonshim.simulator.rules.objection import Objection

if TYPE_CHECKING:
    from moonshim.simulator.host.behaviours import HostBehaviour

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
    message = f"Not found the model {name} or Permission denied"
    return Objection(message, status=404, kind="resource_not_found_error", about=name)


def no_path(path: str) -> Objection:
    return Objection(f"method not found: {path}", status=404, kind="resource_not_found_error")


def not_json(problem: str) -> Objection:
    return Objection(f"Invalid request: the body is not JSON: {problem}")


def refusal(objection: Objection, *, wire: Wire, behaviour: HostBehaviour) -> Status:
    """The response to send instead. Whatever was in the request, its body can be encoded as JSON.

    >>> from moonshim.simulator.host.behaviours import BEHAVIOURS
    >>> refusal(Objection("no"), wire="openai_chat", behaviour=BEHAVIOURS["moonshot"]).body
    {'error': {'message': 'no', 'type': 'invalid_request_error'}}
    """
    message = objection.message.encode(errors="replace").decode()
    status, body = _SHAPES[behaviour.errors](_saying(objection, message), wire)
    headers = {"content-type": "application/json"}
    return Status(status=status, headers=headers, body=json.dumps(body).encode() if isinstance(body, str) else body)


def _saying(objection: Objection, message: str) -> Objection:
    about = objection.about.encode(errors="replace").decode()
    return Objection(message, status=objection.status, kind=objection.kind, about=about)


# --- the shapes of hosts ----------------------------------------------------------------------------------------

_Shape: TypeAlias = Callable[[Objection, Wire], tuple[int, Any]]
_CODE_KEY: Final = (
    "The API Key appears to be invalid or may have expired. Please verify your credentials and try again."
)
# Messages for Anthropic clients. The first two were seen; the others use Chat's wording.
_MESSAGES_KINDS: Final = {
    "invalid_request_error": "invalid_request_error",
    "invalid_authentication_error": "authentication_error",
}
_VLLM_KINDS: Final = {401: "Unauthorized", 404: "NotFoundError", 429: "TooManyRequests"}


def _moonshot(objection: Objection, wire: Wire) -> tuple[int, Json]:
    if wire == "anthropic":
        return objection.status, _messages(_MESSAGES_KINDS.get(objection.kind, objection.kind), objection.message)
    return objection.status, {"error": {"message": objection.message, "type": objection.kind}}


def _messages(kind: str, message: str) -> Json:
    return {"error": {"type": kind, "message": message}, "type": "error"}


def _kimi_coding(objection: Objection, wire: Wire) -> tuple[int, Json]:
    if objection.kind == NO_KEY.kind:
        objection = Objection(_CODE_KEY, status=401, kind=objection.kind)
    return _moonshot(objection, wire)


def _siliconflow(objection: Objection, wire: Wire) -> tuple[int, Json | str]:
    """It has its own error numbers. A wrong key is reported as a bare string."""
    if objection.kind == NO_KEY.kind:
        return 401, "Invalid token"
    if objection.about:
        return 400, {"code": 20012, "message": "Model does not exist. Please check it carefully.", "data": None}
    return objection.status, {"code": 20015, "message": objection.message, "data": None}


def _openrouter(objection: Objection, wire: Wire) -> tuple[int, Json]:
    """Its provider's message is wrapped; its own is not."""
    own: tuple[int, str] | None = None
    if objection.kind == NO_KEY.kind:
        own = 401, "No auth credentials found"
    elif objection.about:
        own = 400, f"{objection.about} is not a valid model ID"
    if own is not None:
        return own[0], {"error": {"message": own[1], "code": own[0]}}
    raw = json.dumps(_moonshot(objection, "openai_chat")[1], ensure_ascii=False, separators=(",", ":"))
    metadata = {"raw": raw, "provider_name": "Moonshot AI"}
    return objection.status, {
        "error": {"message": "Provider returned error", "code": objection.status, "metadata": metadata}
    }


def _vllm(objection: Objection, wire: Wire) -> tuple[int, Json]:
    if objection.kind == NO_KEY.kind:
        return 401, {"error": "Unauthorized"}
    message = f"The model `{objection.about}` does not exist." if objection.about else objection.message
    if wire == "anthropic":
        return objection.status, _messages(objection.kind, message)
    kind = _VLLM_KINDS.get(objection.status, "BadRequestError")
    return objection.status, {"error": {"message": message, "type": kind, "param": None, "code": objection.status}}


_SHAPES: Final[dict[str, _Shape]] = {
    "moonshot": _moonshot,
    "kimi-coding": _kimi_coding,
    "siliconflow": _siliconflow,
    "openrouter": _openrouter,
    "vllm": _vllm,
}
