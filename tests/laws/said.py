"""What a request says, whatever dialect said it; and the table of what each dialect cannot say.

`said` flattens a request into plain values: how parts are grouped into messages, how
identifiers are spelled and how arguments are spaced is not what is said. `CANNOT` lists,
for each dialect, what it has no words for. Each entry is a function that takes this out
of a request (or puts it in the words that stand for it), so that the rest can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import reasoning_fields
from moonshim.engine.values.conversation import (
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

__all__ = ["CANNOT", "MESSAGES_CANNOT", "Loss", "Spell", "said", "said_by_messages", "sayable"]

Change: TypeAlias = Callable[[Request], Request]


# --- what is said ---------------------------------------------------------------------------------------------------


Spell: TypeAlias = Callable[[str | None], str | None]


def said(request: Request, *, ids: Spell = lambda _: None) -> dict[str, Any]:
    """Everything that a request says. `ids`: what is told of the identifiers on the wire."""
    out: dict[str, Any] = {
        name: getattr(request, name)
        for name in Request.__struct_fields__
        if name not in ("messages", "tools", "locations", "body_overrides", "extras")
    }
    out["tools"] = None if request.tools is None else [replace(tool, extras={}) for tool in request.tools]
    out["messages"] = said_by_messages(request.messages, ids=ids)
    return out


def said_by_messages(messages: Sequence[Message], *, ids: Spell = lambda _: None) -> list[tuple[Any, ...]]:
    """Who says what, part by part; a result has the number of its call."""
    numbers: dict[str, int] = {}
    return [one for message in messages for one in _said_by(message, numbers, ids)]


def _said_by(message: Message, numbers: dict[str, int], ids: Spell) -> Iterator[tuple[Any, ...]]:
    for part in message.parts:
        match part:
            case Text(text=text):
                if text:
                    yield message.role, "text", text
            case Media():
                yield message.role, "media", _shown(part)
            case Reasoning():
                yield from _thought(part, message)
            case ToolCall(id=id, name=name, arguments=arguments):
                numbers[id] = len(numbers)
                yield "call", numbers[id], name, _value(arguments), ids(part.wire_id)
            case ToolResult(call_id=id, parts=gave, is_error=is_error):
                shown = [_shown(one) if isinstance(one, Media) else one.text for one in gave if one != Text("")]
                yield "result", numbers.get(id), shown, is_error, ids(part.wire_id)


def _thought(part: Reasoning, message: Message) -> Iterator[tuple[Any, ...]]:
    if part.text or part.signature or not part.details:
        yield "thought", part.text, part.signature, _fields(part, message)
    for one in part.details:
        # Where the details say the thought itself, it has been told.
        bare = {key: value for key, value in one.items() if key not in ("text", "summary") or value != part.text}
        yield "detail", json.dumps(bare, sort_keys=True)


def _fields(part: Reasoning, message: Message) -> tuple[str, ...]:
    """Under which names of Chat it is told."""
    if part.field is not None:
        return (part.field,)
    return reasoning_fields(message) or ("reasoning_details",)


def _shown(media: Media) -> tuple[Any, ...]:
    return media.kind, media.url, media.data, media.media_type, media.name, media.detail


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


# --- ways to take something out of a request --------------------------------------------------------------------


def _parts(change: Callable[[Part, Message], Part | None]) -> Change:
    """Change every part, those of results too."""

    def inner(part: Part, message: Message) -> Part | None:
        if isinstance(part, ToolResult):
            kept = (change(one, message) for one in part.parts)
            part = replace(part, parts=tuple(one for one in kept if one is not None))
        return change(part, message)

    def apply(request: Request) -> Request:
        messages = []
        for message in request.messages:
            kept = (inner(part, message) for part in message.parts)
            messages.append(replace(message, parts=tuple(part for part in kept if part is not None)))
        return replace(request, messages=tuple(messages))

    return apply


_NOTHING: Final[dict[str, Any]] = {"stop": (), "metadata": {}}


def _without(*fields: str) -> Change:
    def apply(request: Request) -> Request:
        for field in fields:
            group, _, inner = field.rpartition(".")
            owner = getattr(request, group) if group else request
            owner = replace(owner, **{inner: _NOTHING.get(inner)})
            request = replace(request, **{group: owner}) if group else owner
        return request

    return apply


def _media(change: Callable[[Media], Media | None]) -> Change:
    return _parts(lambda part, _: change(part) if isinstance(part, Media) else part)


def _thoughts(change: Callable[[Reasoning], Reasoning]) -> Change:
    return _parts(lambda part, _: change(part) if isinstance(part, Reasoning) else part)


def _results(change: Callable[[ToolResult], ToolResult]) -> Change:
    return _parts(lambda part, _: change(part) if isinstance(part, ToolResult) else part)


def _tools(change: Callable[[Tool], Tool | None]) -> Change:
    def apply(request: Request) -> Request:
        if request.tools is None:
            return request
        return replace(request, tools=tuple(new for new in map(change, request.tools) if new is not None))

    return apply


def _messages(change: Callable[[Message], Message]) -> Change:
    return lambda request: replace(request, messages=tuple(map(change, request.messages)))


def _thinking(change: Callable[[Thinking], Thinking]) -> Change:
    return lambda request: replace(request, thinking=change(request.thinking))


# --- what is lost, by name --------------------------------------------------------------------------------------


class Loss(Struct, frozen=True):
    """Something that a dialect has no words for, and what is left of it."""

    why: str
    left: Change
    told: str = ""
    """What the change says that rendering reports; empty: the rest says it in other words, or it means nothing."""


def _joined_thoughts(message: Message) -> Message:
    thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
    if len(thoughts) < 2:
        return message
    details = tuple(detail for part in thoughts for detail in part.details)
    said = [part for part in thoughts if part.text or part.signature]
    signature = said[0].signature if len(said) == 1 else None
    signature = next((one["signature"] for one in details if "signature" in one), signature)
    # The first name is the one that counts.
    named = next((part.field for part in thoughts if part.field is not None), None)
    text = "\n".join(part.text for part in said if part.text)
    others = [part for part in message.parts if not isinstance(part, Reasoning)]
    return replace(message, parts=(Reasoning(text, signature, details, named), *others))


def _signed_alone(message: Message) -> Message:
    """Nobody has signed what was joined; a signature among the details stays where it is."""
    thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
    if sum(bool(part.text or part.signature) for part in thoughts) < 2:
        return message
    unsigned = [replace(p, signature=None) if isinstance(p, Reasoning) and not p.details else p for p in message.parts]
    return replace(message, parts=tuple(unsigned))


def _only_redacted(part: Reasoning) -> Reasoning:
    return replace(part, details=tuple(one for one in part.details if one["type"] == "redacted_thinking"))


def _unrepeated(part: Reasoning) -> Reasoning:
    return replace(part, details=tuple(one for one in part.details if one.get("text") != part.text))


def _effort_or_none(thinking: Thinking) -> Thinking:
    return Thinking(enabled=False) if thinking.enabled is False else Thinking(effort=thinking.effort)


def _only_how_hard(thinking: Thinking) -> Thinking:
    return thinking if thinking.effort is not None or thinking.enabled is False else Thinking()


def _later_prompts_by_user(request: Request) -> Request:
    """Those behind the first message are said by the user, in tags."""
    out, leading = list[Message](), True
    for message in request.messages:
        leading = leading and message.role == "system"
        if message.role == "system" and not leading:
            text = "\n".join(part.text for part in message.parts if isinstance(part, Text))
            out.append(Message("user", (Text(f"<system>\n{text}\n</system>"),)))
        else:
            out.append(message)
    return replace(request, messages=tuple(out))


def _arguments_are_objects(part: Part, _: Message) -> Part:
    if isinstance(part, ToolCall) and not isinstance(_value(part.arguments), dict):
        return replace(part, arguments="{}")
    return part


def _json_by_schema(request: Request) -> Request:
    form = request.response_format
    return replace(request, response_format=None) if form is not None and form.kind == "json_object" else request


def _only_schema(request: Request) -> Request:
    form = request.response_format
    if form is None or form.kind != "json_schema":
        return replace(request, response_format=None)
    return replace(request, response_format=ResponseFormat("json_schema", schema=form.schema))


def _known_effort(thinking: Thinking) -> Thinking:
    return replace(thinking, effort="low") if thinking.effort == "minimal" else thinking


def _any_tool(request: Request) -> Request:
    choice = request.tool_choice
    return request if choice is None else replace(request, tool_choice=ToolChoice(choice.mode, choice.name))


def _parallel_needs_choice(request: Request) -> Request:
    """It is a part of the choice, there said of all but `none`; that calls may be parallel is the rule."""
    choice, parallel = request.tool_choice, request.parallel_calls
    if choice is None and parallel is False:
        return replace(request, tool_choice=ToolChoice("auto"))
    return replace(request, parallel_calls=None) if choice is None or choice.mode == "none" else request


def _with_limit(request: Request) -> Request:
    if request.sampling.max_tokens is not None:
        return request
    return replace(request, sampling=replace(request.sampling, max_tokens=32_000))


_EMPTY: Final[dict[str, Any]] = {"type": "object", "properties": {}}

CANNOT: Final[dict[str, dict[str, Loss]]] = {
    "openai_chat": {
        "failed results": Loss(
            "a failed result is told by its text",
            _results(lambda result: replace(result, is_error=False)),
            "is_error dropped",
        ),
        "signatures": Loss("nobody has signed what is joined", _messages(_signed_alone), "reasoning signature dropped"),
        "pieces of reasoning": Loss("one text for all reasoning of a message", _messages(_joined_thoughts)),
        "top_k": Loss("no such field", _without("sampling.top_k"), "top_k"),
        "thinking itself": Loss("only how hard", _thinking(_only_how_hard), "thinking dropped"),
        "how to think": Loss("an effort, or none", _thinking(_effort_or_none)),
        "deferred tools": Loss("all are loaded", _tools(lambda tool: replace(tool, deferred=False))),
        "namespaces": Loss(
            "their names stay in front of the tools'", _tools(lambda tool: replace(tool, namespace=None))
        ),
        "hosted tools": Loss(
            "only `$` names", _tools(lambda tool: None if tool.kind == "server" else tool), "no hosted tool"
        ),
    },
    "anthropic": {
        "later prompts": Loss("text of the user", _later_prompts_by_user, "system message sent as user text"),
        "details that repeat": Loss("a text and its signature are a block", _thoughts(_unrepeated)),
        "details": Loss("only what was redacted", _thoughts(_only_redacted), "reasoning_details"),
        "names of reasoning": Loss("there is one", _thoughts(lambda part: replace(part, field="reasoning_content"))),
        "arguments": Loss("an object", _parts(_arguments_are_objects), "not a JSON object"),
        "detail of images": Loss(
            "no such field", _media(lambda media: replace(media, detail=None)), "image detail dropped"
        ),
        "penalties and seeds": Loss(
            "no such fields",
            _without("sampling.presence_penalty", "sampling.frequency_penalty", "sampling.seed", "sampling.n"),
            "Messages",
        ),
        "no limit": Loss("max_tokens is needed", _with_limit, "a limit"),
        "kinds of tools": Loss(
            "free text is a function of one string",
            _tools(lambda tool: replace(tool, kind="function") if tool.kind == "custom" else tool),
        ),
        "namespaces": Loss(
            "their names stay in front of the tools'", _tools(lambda tool: replace(tool, namespace=None))
        ),
        "no schema": Loss(
            "a schema is needed",
            _tools(
                lambda tool: (
                    replace(tool, parameters=_EMPTY) if tool.kind == "function" and not tool.parameters else tool
                )
            ),
        ),
        "allowed tools": Loss("all may be called", _any_tool, "allowed_tools dropped"),
        "choices among nothing": Loss(
            "refused where there are no tools",
            lambda request: request if request.tools else replace(request, tool_choice=None, parallel_calls=None),
        ),
        "parallel calls": Loss("said with the choice", _parallel_needs_choice),
        "thoughts of former turns": Loss("no such word", _without("thinking.keep"), "thinking.keep dropped"),
        "no thinking": Loss(
            "without a switch there is only an effort",
            _thinking(lambda thinking: thinking if thinking.enabled else replace(thinking, budget=None)),
        ),
        "least effort": Loss("it begins at low", _thinking(_known_effort), "effort 'minimal' sent as"),
        "JSON of no schema": Loss("only with a schema", _json_by_schema, "JSON mode dropped"),
        "names of schemas": Loss("the schema alone", _only_schema),
        "metadata": Loss("only the user's name", _without("metadata"), "metadata"),
        "cache key": Loss("no such field", _without("cache_key"), "prompt_cache_key"),
        "usage": Loss("it is always told", _without("include_usage")),
    },
    "openai_responses": {
        "failed results": Loss(
            "a failed result is told by its text",
            _results(lambda result: replace(result, is_error=False)),
            "is_error dropped",
        ),
        "details": Loss("no place for them", _thoughts(lambda part: replace(part, details=())), "reasoning_details"),
        "names of reasoning": Loss("there is one", _thoughts(lambda part: replace(part, field="reasoning_content"))),
        "much of sampling": Loss(
            "no such fields",
            _without("sampling.top_k", "sampling.seed", "sampling.n", "sampling.stop"),
            "Responses does not support",
        ),
        "how to think": Loss("an effort, or none", _thinking(_effort_or_none)),
        "usage": Loss("it is always told", _without("include_usage")),
    },
}
"""By dialect: what a request rendered in it no longer says."""


def _same_speech(message: Message) -> Message:
    """Texts beside each other are one text."""
    if message.role not in ("system", "user") or not all(isinstance(part, Text) for part in message.parts):
        return message
    return replace(message, parts=(Text("\n".join(part.text for part in message.parts if isinstance(part, Text))),))


def _plain_output(result: ToolResult) -> ToolResult:
    """Texts are one text; a failure is told of texts alone; nothing is told in words."""
    texts = [part.text for part in result.parts if isinstance(part, Text)]
    if not result.parts:
        return replace(result, parts=(Text("[no tool result]"),))
    if len(texts) == len(result.parts):
        return replace(result, parts=(Text("\n".join(texts)),))
    return replace(result, is_error=False)


def _neighbours_joined(request: Request) -> Request:
    """What the user says in two messages in a row is one message."""
    out = list[Message]()
    for message in request.messages:
        if out and out[-1].role == message.role == "user":
            out[-1] = replace(out[-1], parts=(*out[-1].parts, *message.parts))
        else:
            out.append(message)
    return replace(request, messages=tuple(out))


_ONLY_IN_REQUESTS: Final = {"anthropic": ("later prompts",)}

MESSAGES_CANNOT: Final[dict[str, dict[str, Loss]]] = {
    name: {what: loss for what, loss in losses.items() if what not in _ONLY_IN_REQUESTS.get(name, ())}
    for name, losses in CANNOT.items()
} | {
    "vercel_ai": {
        "pieces of text": Loss("one string", _messages(_same_speech)),
        "details": Loss("no place for them", _thoughts(lambda part: replace(part, details=()))),
        "names of reasoning": Loss("there is one", _thoughts(lambda part: replace(part, field="reasoning_content"))),
        "names of files": Loss("no place for them", _media(lambda media: replace(media, name=None))),
        "detail of images": Loss("no such field", _media(lambda media: replace(media, detail=None))),
        "results": Loss("text, or content that has not failed", _results(_plain_output)),
    },
}
MESSAGES_CANNOT["anthropic"]["neighbours"] = Loss("roles take turns", _neighbours_joined)
"""By dialect: what its messages do not say, where only messages are told (`translate_messages`)."""


def sayable(request: Request, *losses: dict[str, Loss]) -> Request:
    """What is left of a request that goes through these dialects, in this order."""
    for table in losses:
        for loss in table.values():
            request = loss.left(request)
    return request
