"""A request -> the answer of a scripted host: no model, but something to try clients on, and something to mend.

It calls the first tool that it is offered, with arguments made from its schema, and from the user's words where a name
is among them: "the weather in Paris" asks for Paris. `kimi-k2.5` leaks
the markers of the call into its text, one token in each chunk, as hosts do; `kimi-k3` calls
without an identifier. Given a result it answers with it. Everything is said in the same way each time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec
import uvicorn

from moonshim.config import Config, Provider
from moonshim.config.environment import CLIENTS_OWN, with_overrides
from moonshim.serving.listening import bind, url_of
from moonshim.serving.server import AppServer

__all__ = ["MODELS", "Demo", "demo_app", "demo_config", "start_demo"]

Json: TypeAlias = dict[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]

MODELS: Final = ("kimi-k2.5", "kimi-k3")
PIECE: Final = 12
"""Characters in a chunk of text, about three tokens."""
SHOWN: Final = 500
CREATED: Final = 1_767_225_600
_HELLO: Final = (
    "This is the demo of Moonshim: a scripted host, no model. It repeats what it is told, and calls the first tool "
    "that it is offered. Name a real host to talk to a model: docs/operating.md says how."
)
_NAME: Final = re.compile(r"(?<=[a-z,] )[A-Z][\w-]+(?: [A-Z][\w-]+){0,2}")
_SAMPLES: Final[Json] = {
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "null": None,
    "array": [],
    "object": {},
}


class Demo:
    """A scripted host that listens at `url`, on loopback, until it is closed."""

    def __init__(self, url: str, server: AppServer, running: asyncio.Task[None]) -> None:
        self.url = url
        self._server, self._running = server, running

    async def close(self) -> None:
        self._server.should_exit = True
        await self._running


async def start_demo() -> Demo:
    """Start it in this process, on a port of its own."""
    sockets = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        demo_app,
        interface="asgi3",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = AppServer(config)
    running = asyncio.create_task(server.serve(sockets))
    while not server.started and not running.done():
        await asyncio.sleep(0.005)
    return Demo(f"{url_of('127.0.0.1', sockets[0].getsockname()[1])}/v1", server, running)


def demo_config(url: str, environ: Mapping[str, str]) -> Config:
    """A configuration with the scripted host, which answers to the names that agents ask for by themselves."""
    provider = Provider(name="demo", api_base_url=url, models=MODELS)
    model: tuple[str, ...] = (f"demo/{MODELS[0]}",)
    config = Config(providers=(provider,), aliases=dict.fromkeys(CLIENTS_OWN, model), source="--demo")
    return with_overrides(config, environ)


# -- HTTP --------------------------------------------------------------------------------------------------------


async def demo_app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """`POST …/chat/completions`, streamed or whole."""
    body = await _body(receive)
    if scope["method"] != "POST" or not scope["path"].endswith("/chat/completions"):
        await _respond(send, 404, {"error": {"message": "the demo speaks Chat Completions only", "type": "not_found"}})
        return
    try:
        request = msgspec.json.decode(body, type=Json)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        await _respond(send, 400, {"error": {"message": "not JSON", "type": "invalid_request_error"}})
        return
    if request.get("stream") is not True:
        await _respond(send, 200, whole(request))
        return
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for chunk in chunks(request):
        data = b"data: " + msgspec.json.encode(chunk) + b"\n\n"
        await send({"type": "http.response.body", "body": data, "more_body": True})
        await asyncio.sleep(0)  # each chunk in a piece of its own, as hosts send them
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def _respond(send: Send, status: int, body: Json) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(body)})


# -- what is said ------------------------------------------------------------------------------------------------


def chunks(request: Json) -> Iterator[Json]:
    """The answer as a stream of chunks."""
    yield _chunk(request, {"role": "assistant", "content": ""})
    for piece in _reasoning(request):
        yield _chunk(request, {"reasoning_content": piece})
    said = 0
    for piece in _speech(request):
        said += 1
        yield _chunk(request, {"content": piece})
    for entry in _native_call(request):
        said += 1
        yield _chunk(request, {"tool_calls": [entry]})
    # A host that leaks its markers believes that it has spoken, and says `stop`.
    yield _chunk(request, {}, finish="stop")
    options = request.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        yield _envelope(request, "chat.completion.chunk") | {"choices": [], "usage": _usage(request, said)}


def whole(request: Json) -> Json:
    """The same answer at once."""
    pieces, entries = list(_speech(request)), list(_native_call(request))
    message: Json = {
        "role": "assistant",
        "content": "".join(pieces),
        "reasoning_content": "".join(_reasoning(request)),
    }
    if entries:
        arguments = "".join(entry["function"]["arguments"] for entry in entries)
        name = entries[0]["function"]["name"]
        message["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": arguments}}]
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = _usage(request, len(pieces) + len(entries))
    return _envelope(request, "chat.completion") | {"choices": [choice], "usage": usage}


def _reasoning(request: Json) -> Iterator[str]:
    yield from _pieces("A script has no thoughts, but clients want to see some. ")


def _speech(request: Json) -> Iterator[str]:
    """What is said, a token or a few in each piece."""
    last = _messages(request)[-1] if _messages(request) else {}
    if last.get("role") == "tool":
        yield from _pieces(f"The tool said: {_text(last.get('content'))[:SHOWN]}")
    elif (function := _to_call(request)) is None:
        yield from _pieces(f"{_HELLO} You said: {_text(last.get('content'))[:SHOWN]}")
    elif not _is_k3(request):
        number = sum(len(one.get("tool_calls") or ()) for one in _messages(request))
        yield from ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions", f".{function['name']}", ":")
        yield from (str(number), "<|tool_call_argument_begin|>")
        yield from _pieces(_arguments(function, request))
        yield from ("<|tool_call_end|>", "<|tool_calls_section_end|>")


def _native_call(request: Json) -> Iterator[Json]:
    """The entries of a call as `kimi-k3` makes it: without an identifier."""
    function = _to_call(request)
    if function is None or not _is_k3(request):
        return
    yield {"index": 0, "type": "function", "function": {"name": function["name"], "arguments": ""}}
    for piece in _pieces(_arguments(function, request)):
        yield {"index": 0, "function": {"arguments": piece}}


def _to_call(request: Json) -> Json | None:
    """The function to call: the first that is offered, unless its result has just come."""
    messages = _messages(request)
    if request.get("tool_choice") == "none" or (messages and messages[-1].get("role") == "tool"):
        return None
    functions = (one.get("function") for one in request.get("tools") or () if isinstance(one, dict))
    return next((one for one in functions if isinstance(one, dict) and isinstance(one.get("name"), str)), None)


def _arguments(function: Json, request: Json) -> str:
    return msgspec.json.encode(sample(function.get("parameters"), word=_named(request))).decode()


def _named(request: Json) -> str:
    """A name among the user's last words: capital letters that begin no sentence; else a word that says what this is.

    >>> _named({"messages": [{"role": "user", "content": "What is the weather in New York? Tell me."}]})
    'New York'
    """
    said = (_text(one.get("content")) for one in reversed(_messages(request)) if one.get("role") == "user")
    found = _NAME.search(next(said, ""))
    return found[0] if found else "demo"


def _is_k3(request: Json) -> bool:
    return str(request.get("model")).endswith("k3")


def _messages(request: Json) -> list[Json]:
    return [one for one in request.get("messages") or () if isinstance(one, dict)]


def sample(schema: Any, depth: int = 0, *, word: str = "demo") -> Any:
    """A value that a schema allows, as far as that can be read from it; `word` is what texts say.

    >>> sample({"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}},
    ...         "required": ["path"]})
    {'path': 'demo'}
    >>> sample({"enum": ["b", "a"]}), sample({"type": ["integer", "null"], "minimum": 5})
    ('b', 5)
    """
    if not isinstance(schema, dict) or depth > 8:
        return {} if depth == 0 else word
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(choice), list) and schema[choice]:
            return sample(schema[choice][0], depth + 1, word=word)
    kind = schema.get("type", "object" if depth == 0 or "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        properties, wanted = schema.get("properties"), schema.get("required")
        known = properties if isinstance(properties, dict) else {}
        names = wanted if isinstance(wanted, list) else []
        return {name: sample(known.get(name), depth + 1, word=word) for name in names if isinstance(name, str)}
    if kind == "array" and isinstance(schema.get("minItems"), int):
        return [sample(schema.get("items"), depth + 1, word=word) for _ in range(min(schema["minItems"], 8))]
    if kind in {"integer", "number"} and isinstance(schema.get("minimum"), (int, float)):
        return schema["minimum"]
    return _SAMPLES.get(str(kind), word)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), PIECE):
        yield text[at : at + PIECE]


def _envelope(request: Json, kind: str) -> Json:
    return {"id": "chatcmpl-demo", "object": kind, "created": CREATED, "model": request.get("model") or MODELS[0]}


def _chunk(request: Json, delta: Json, *, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _envelope(request, "chat.completion.chunk") | {"choices": [choice]}


def _usage(request: Json, said: int) -> Json:
    """Not counted as a model would: there is none. About four bytes are a token."""
    prompt = len(msgspec.json.encode(request.get("messages"))) // 4
    return {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
