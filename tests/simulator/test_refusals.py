"""Errors in the shape of each host, as far as it is known."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from moonshim.simulator.host.behaviours import BEHAVIOURS
from moonshim.simulator.host.refusals import NO_KEY, OTHER_AGENT, TOO_LARGE, no_model, no_path, not_json, refusal
from moonshim.simulator.request import Wire
from moonshim.simulator.rules import Objection

BAD = Objection("invalid n: only 1 is allowed for this model")
BUSY = Objection("The engine is currently overloaded, please try again later", 429, "engine_overloaded_error")
CODING_AGENTS = (
    "Kimi For Coding is currently only available for Coding Agents such as Kimi CLI, Claude Code, Roo Code, Kilo Code, "
    "etc."
)
CODE_KEY = "The API Key appears to be invalid or may have expired. Please verify your credentials and try again."


def chat(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind}}


def messages(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"type": kind, "message": message}, "type": "error"}


def vllm(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def wrapped(code: int, raw: dict[str, Any]) -> dict[str, Any]:
    metadata = {"raw": json.dumps(raw, separators=(",", ":")), "provider_name": "Moonshot AI"}
    return {"error": {"message": "Provider returned error", "code": code, "metadata": metadata}}


NO_X = "Not found the model x or Permission denied"
CHAT = [
    ("moonshot", BAD, 400, chat(BAD.message)),
    ("moonshot", NO_KEY, 401, chat("Invalid Authentication", "invalid_authentication_error")),
    ("moonshot", no_model("x"), 404, chat(NO_X, "resource_not_found_error")),
    ("moonshot", no_path("/v2"), 404, chat("method not found: /v2", "resource_not_found_error")),
    ("moonshot", TOO_LARGE, 413, chat("Request exceeds the maximum size")),
    ("moonshot", BUSY, 429, chat(BUSY.message, "engine_overloaded_error")),
    ("moonshot", not_json("line 1"), 400, chat("Invalid request: the body is not JSON: line 1")),
    ("kimi-coding", BAD, 400, chat(BAD.message)),
    ("kimi-coding", NO_KEY, 401, chat(CODE_KEY, "invalid_authentication_error")),
    ("kimi-coding", OTHER_AGENT, 403, chat(CODING_AGENTS, "access_terminated_error")),
    ("siliconflow", BAD, 400, {"code": 20015, "message": BAD.message, "data": None}),
    ("siliconflow", NO_KEY, 401, "Invalid token"),
    (
        "siliconflow",
        no_model("x"),
        400,
        {"code": 20012, "message": "Model does not exist. Please check it carefully.", "data": None},
    ),
    ("openrouter", BAD, 400, wrapped(400, chat(BAD.message))),
    ("openrouter", BUSY, 429, wrapped(429, chat(BUSY.message, "engine_overloaded_error"))),
    ("openrouter", NO_KEY, 401, {"error": {"message": "No auth credentials found", "code": 401}}),
    ("openrouter", no_model("x"), 400, {"error": {"message": "x is not a valid model ID", "code": 400}}),
    ("vllm", BAD, 400, vllm(BAD.message, "BadRequestError", 400)),
    ("vllm", NO_KEY, 401, {"error": "Unauthorized"}),
    ("selfhost", no_model("x"), 404, vllm("The model `x` does not exist.", "NotFoundError", 404)),
]
MESSAGES = [
    ("moonshot", BAD, 400, messages(BAD.message)),
    ("moonshot", NO_KEY, 401, messages("Invalid Authentication", "authentication_error")),
    ("moonshot", no_model("x"), 404, messages(NO_X, "resource_not_found_error")),
    ("kimi-coding", BAD, 400, messages(BAD.message)),
    ("kimi-coding", NO_KEY, 401, messages(CODE_KEY, "authentication_error")),
    ("kimi-coding", OTHER_AGENT, 403, messages(CODING_AGENTS, "access_terminated_error")),
    ("vllm", BAD, 400, messages(BAD.message)),
]


def sent(name: str, objection: Objection, wire: Wire) -> tuple[int, Any]:
    received = refusal(objection, wire=wire, behaviour=BEHAVIOURS[name])
    assert received.headers["content-type"] == "application/json"
    return received.status, json.loads(received.body) if isinstance(received.body, bytes) else received.body


@pytest.mark.parametrize(("name", "objection", "status", "body"), CHAT)
def test_chat(name: str, objection: Objection, status: int, body: Any) -> None:
    assert sent(name, objection, "openai_chat") == (status, body)


@pytest.mark.parametrize(("name", "objection", "status", "body"), MESSAGES)
def test_messages(name: str, objection: Objection, status: int, body: Any) -> None:
    assert sent(name, objection, "anthropic") == (status, body)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_every_host_can_say_everything_and_it_can_be_written(name: str) -> None:
    broken = "\ud800 is half a character"
    for wire in ("openai_chat", "anthropic"):
        for objection in (BAD, BUSY, NO_KEY, OTHER_AGENT, TOO_LARGE, no_model(broken), Objection(broken)):
            received = refusal(objection, wire=wire, behaviour=BEHAVIOURS[name])
            assert received.body is not None
            assert 400 <= received.status < 500
            msgspec.json.encode(received.body)
