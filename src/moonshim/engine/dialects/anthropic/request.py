"""Messages request <-> canonical request, lossless for everything that Messages can express."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.errors import ThreadUnsupported
from moonshim.engine.dialects.anthropic.extras import (
    DIALECT,
    Json,
    MessagesRequestExtras,
    body_fields,
    extras_of,
    request_extras,
)
from moonshim.engine.dialects.anthropic.fields import DEFAULT_MAX_TOKENS, FIELDS, OTHER_TYPES, read_fields, write_fields
from moonshim.engine.dialects.anthropic.messages import (
    parse_message_list,
    parse_system,
    render_message_list,
    render_system,
)
from moonshim.engine.dialects.anthropic.searches import is_results, with_opened_results
from moonshim.engine.dialects.anthropic.tools import parse_tools, render_tools
from moonshim.engine.dialects.protocol import with_overrides
from moonshim.engine.signing import Signer, UnknownSigningKey, is_signed
from moonshim.engine.values.conversation import Change, Media, Message, Part, Reasoning, Request, Sampling
from moonshim.engine.values.lifetimes import longest_lifetime
from moonshim.engine.values.type_names import describe_type
from moonshim.engine.wire.json_fields import LIST, STRING, check_fields, read_not_empty
from moonshim.errors import InvalidInput

__all__ = ["drop_unsupported", "parse_request", "render_request"]

_SEPARATE_FIELDS: Final = frozenset({"model", "messages", "system", "tools"})
_KNOWN: Final = _SEPARATE_FIELDS | {key for field in FIELDS.values() for key in field.keys}
_UNSUPPORTED: Final = {
    "presence_penalty": "Messages does not support presence_penalty",
    "frequency_penalty": "Messages does not support frequency_penalty",
    "seed": "Messages does not support seed",
    "n": "Messages returns a single response",
}
_NEUTRAL_VALUES: Final = frozenset({("presence_penalty", 0), ("frequency_penalty", 0), ("n", 1)})


def parse_request(body: Any, signer: Signer) -> tuple[Request, list[Change]]:
    """Parse a body. Raises `InvalidInput` with the invalid field.

    >>> body = {"model": "kimi-k3", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "system": "Hm."}
    >>> request, _ = parse_request(body, Signer())
    >>> [message.role for message in request.messages], request.locations
    (['system', 'user'], ('system', 'messages[0]'))
    >>> render_request(request)[0] == body
    True
    """
    if not isinstance(body, dict):
        raise InvalidInput(f"expected a request body that is an object, got {describe_type(body)}")
    model, listed = read_not_empty(body, "model", STRING), read_not_empty(body, "messages", LIST)
    if body.get("thread") is not None:
        # It contains only the new messages: a reply to those alone would be wrong.
        raise ThreadUnsupported("threads are not supported: send the whole conversation in messages", field="thread")
    check_fields(body, OTHER_TYPES)
    values = read_fields(body)
    (choice, parallel), (effort, form), (user, metadata) = values["choice"], values["output"], values["metadata"]
    system, changes = parse_system(body.get("system")), list[Change]()
    messages, places = parse_message_list(listed)
    messages = [
        _open_signatures(message, place, signer, changes) for message, place in zip(messages, places, strict=True)
    ]
    extras = MessagesRequestExtras(
        fields={key: value for key, value in body.items() if key not in _SEPARATE_FIELDS},
        system=body["system"] if "system" in body and not body["system"] else UNSET,
        tools=body["tools"] if "tools" in body and not body["tools"] else UNSET,
        marks_cache=any(_has_cache_control(body.get(key)) for key in ("system", "tools")),
    )
    lists = (body.get("system"), body.get("tools"), *(one.get("content") for one in body["messages"]))
    request = Request(
        model=model,
        messages=(*system, *messages),
        tools=parse_tools(body.get("tools")),
        tool_choice=choice,
        parallel_calls=parallel,
        sampling=Sampling(
            temperature=values["temperature"],
            top_p=values["top_p"],
            top_k=values["top_k"],
            max_tokens=values["max_tokens"],
            stop=values["stop"],
        ),
        thinking=replace(values["thinking"], effort=effort),
        response_format=form,
        stream=values["stream"],
        user=user,
        metadata=metadata,
        cache_ttl=longest_lifetime(_cache_ttls(body, lists)),
        locations=(*("system" for _ in system), *places),
        extras={DIALECT: extras},
    )
    return request, changes


def _open_signatures(message: Message, place: str, signer: Signer, changes: list[Change]) -> Message:
    """Replace our own signatures in the message with their content."""
    if not any(
        _signed_token(part) if isinstance(part, Reasoning) else isinstance(part, Media) and is_results(part)
        for part in message.parts
    ):
        return message
    parts: list[Part] = []
    for index, part in enumerate(message.parts):
        if isinstance(part, Media) and is_results(part):
            parts.append(with_opened_results(part, signer))
            continue
        token = _signed_token(part) if isinstance(part, Reasoning) else None
        if not isinstance(part, Reasoning) or token is None:
            parts.append(part)
            continue
        try:
            payload = signer.open(token, field=f"{place}.content[{index}].signature")
        except UnknownSigningKey:
            detail = "signature dropped: it was signed with a different key"
            changes.append(Change("seal_unknown", detail, f"{place}.content[{index}].signature"))
            parts.append(Reasoning(part.text))
        else:
            parts.append(Reasoning(part.text or payload.text or "", payload.signature, payload.details, payload.field))
    return replace(message, parts=tuple(parts))


def _signed_token(part: Reasoning) -> str | None:
    token = part.details[0].get("data") if part.details else part.signature
    return token if is_signed(token) else None


def render_request(request: Request) -> tuple[Json, list[Change]]:
    """The body of this request, and what Messages cannot express."""
    extras, changes = request_extras(request), list[Change]()
    received = extras.fields
    leading = list(takewhile(_is_system_prompt, request.messages))
    body: Json = {"model": request.model}
    fields = write_fields(request, received, lambda detail, place: changes.append(Change("cannot_say", detail, place)))
    body |= {key: fields.pop(key, value) for key, value in received.items() if key in fields or key not in _KNOWN}
    body |= fields
    if not request.tools and "tool_choice" not in received:
        body.pop("tool_choice", None)  # It is refused without tools.
    if request.sampling.max_tokens is None:
        changes.append(
            Change("max_tokens_default", f"set to {DEFAULT_MAX_TOKENS}: Messages requires a limit", "max_tokens")
        )
    system = render_system(leading)
    if system is not None or extras.system is not UNSET:
        body["system"] = extras.system if system is None else system
    rest, places = request.messages[len(leading) :], request.locations[len(leading) :]
    messages, unsupported = render_message_list(rest, places)
    body["messages"] = messages
    changes += unsupported
    if request.tools is not None:
        body["tools"] = render_tools(request.tools, changes)
    elif extras.tools is not UNSET:
        body["tools"] = extras.tools
    changes += _report_unsupported(request)
    return with_overrides(body, request.body_overrides), changes


def _is_system_prompt(message: Message) -> bool:
    """Whether it belongs to the body's `system`; one received among the messages stays there."""
    return message.role == "system" and extras_of(message).came is None


def _report_unsupported(request: Request) -> Sequence[Change]:
    values = {name: getattr(request.sampling, name) for name in _UNSUPPORTED}
    changes = [
        Change("cannot_say", _UNSUPPORTED[name], name)
        for name, value in values.items()
        if value is not None and (name, value) not in _NEUTRAL_VALUES
    ]
    if request.cache_key is not None:
        changes.append(Change("cannot_say", "Messages does not support prompt_cache_key", "prompt_cache_key"))
    return changes


def drop_unsupported(request: Request) -> tuple[Request, list[Change]]:
    """The request for a host of another dialect, and what was removed."""
    changes = [
        Change("cannot_say", f"{key} dropped: only Messages hosts support it", key)
        for key, value in body_fields(request).items()
        if key not in _KNOWN and value is not None
    ]
    config = body_fields(request).get("output_config")
    if isinstance(config, dict):
        changes += [
            Change("cannot_say", f"output_config.{key} dropped: only Messages hosts support it", f"output_config.{key}")
            for key, value in config.items()
            if value is not None and key != "effort" and (key != "format" or request.response_format is None)
        ]
    if request_extras(request).marks_cache or any(map(_message_has_cache_control, request.messages)):
        changes.append(
            Change("cannot_say", "cache_control dropped: hosts of other dialects cache prompts automatically", None)
        )
    return request, changes


def _cache_ttls(body: Json, lists: Iterable[Any]) -> Iterator[Any]:
    """The lifetimes that the request asks for: at its top, and in blocks and tools."""
    marked = chain((body,), *(one for one in lists if isinstance(one, list)))
    for one in marked:
        control = one.get("cache_control") if isinstance(one, dict) else None
        if isinstance(control, dict):
            yield control.get("ttl")


def _message_has_cache_control(message: Message) -> bool:
    return _has_cache_control(extras_of(message).blocks)


def _has_cache_control(blocks: Any) -> bool:
    listed = blocks if isinstance(blocks, list) else ()
    return any(isinstance(block, dict) and block.get("cache_control") is not None for block in listed)
