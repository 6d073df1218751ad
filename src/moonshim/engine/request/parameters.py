"""Request parameters (everything but messages and tools) -> parameters that the host accepts, with each change."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import DIALECT as CHAT
from moonshim.engine.dialects.openai_chat.extras import body_fields
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.cache_lifetime import fit_cache_ttl
from moonshim.engine.request.sampling import fit_sampling
from moonshim.engine.request.schema.flavour import moonshot_schema
from moonshim.engine.request.thinking import spell_thinking, will_think
from moonshim.engine.request.tools.tool_choice import fit_choice
from moonshim.engine.values.conversation import Change, Media, Message, Request, ResponseFormat, Sampling, Text
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import CannotExpress

__all__ = ["adapt_parameters", "cache_key_of"]

_OLD_FIELD: Final = "max_tokens"
_NEW_FIELD: Final = "max_completion_tokens"
"""KIMI 3: it takes precedence over the old name."""
_FORMAT_NAME: Final = "answer"
_TOKEN_FIELDS: Final = (_OLD_FIELD, _NEW_FIELD)
# Claude Code's first line, which differs in every request (CLIENTS).
_BILLING: Final = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)


def adapt_parameters(request: Request, profile: HostProfile, options: KimiOptions) -> tuple[Request, list[Change]]:
    """Adapt the parameters to the host. A valid request is returned unchanged.

    For a model other than Kimi on an unknown host, the client's values are kept; only what the dialect requires is
    added, and the `tool_choice_default` of the options.

    >>> from moonshim.engine.values.conversation import Sampling
    >>> from moonshim.engine.hosts.detect import profile_for
    >>> row = profile_for(host="moonshot", model="kimi-k2.7-code")
    >>> asked = Request(model="kimi-k2.7-code", cache_key="c", sampling=Sampling(temperature=0.0))
    >>> fitted, changes = adapt_parameters(asked, row, KimiOptions())
    >>> fitted.sampling.temperature, changes[0].detail
    (None, 'temperature 0 dropped: the host accepts only 1')
    """
    thinking = will_think(request, profile)
    request, changes = _fit_stream(request, profile)
    sampling, more = fit_sampling(request.sampling, profile, thinking=thinking)
    changes += more
    if sampling is not request.sampling:
        request = replace(request, sampling=sampling)
    if profile.generation != "other" or request.tool_choice is None:
        request, more = fit_choice(request, profile, thinking=thinking, default=options.tool_choice_default)
        changes += more
    if profile.generation != "other":
        request, more = _fit_format(request, profile)
        changes += more
    request, more = spell_thinking(request, profile)
    changes += more
    request, more = _name_tokens(request, profile)
    changes += more
    request, more = _ask_for_usage(request, profile)
    changes += more
    if profile.takes_cache_key and request.cache_key is None:
        request = replace(request, cache_key=cache_key_of(request))
        changes.append(Change("cache_key", "derived from the start of the conversation", "prompt_cache_key"))
    request, more = fit_cache_ttl(request, profile)
    return request, changes + more


def _fit_stream(request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
    """Ask for a stream or a single response, whichever the host supports; the reply is converted for the client."""
    streams = {"both": request.stream, "only": True, "never": False}[profile.streaming]
    if bool(streams) == bool(request.stream):
        return request, []
    why = (
        "stream requested: the host only streams, and its response is assembled"
        if streams
        else "single response requested: the host does not stream"
    )
    fitted = replace(request, stream=streams)
    if not streams:
        # Hosts refuse `stream_options` on a request that does not stream.
        fitted = replace(fitted, include_usage=None, body_overrides=fitted.body_overrides | {"stream_options": None})
    return fitted, [Change("streaming", why, "stream")]


def _fit_format(request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
    """KIMI 3: text, json_object and json_schema are accepted, the latter with a schema in Moonshot's flavour."""
    wanted = request.response_format
    if wanted is None or wanted.kind != "json_schema":
        return request, []
    schema = wanted.schema
    if schema is None:
        why = "sent as json_object: the host refuses json_schema without a schema"
        plain = replace(request, response_format=ResponseFormat("json_object"))
        return plain, [Change("response_format", why, "response_format")]
    if profile.schema_flavour is None:
        return request, []
    changes: list[Change] = []
    client_dialect = next((name for name in CLIENT_DIALECTS if name in request.extras), None)
    if not wanted.name and profile.dialect == client_dialect == CHAT:
        wanted = replace(wanted, name=_FORMAT_NAME)
        why = f"name {_FORMAT_NAME} added: the host refuses a schema without one"
        changes.append(Change("response_format", why, "response_format.json_schema.name"))
    place = "response_format" if client_dialect is None else dialect_named(client_dialect).response_schema_field
    try:
        schema, details = moonshot_schema(schema, tool=None, limit=profile.schema_limit)
    except CannotExpress as error:
        raise CannotExpress(str(error), field=place) from None
    changes += [Change("response_format", detail, place) for detail in details]
    if not changes:
        return request, []
    return replace(request, response_format=replace(wanted, schema=schema)), changes


def _name_tokens(request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
    """Send the token limit under a name that the host knows. If both names are set, only the effective one is sent:
    the host may refuse the other."""
    tokens = request.sampling.max_tokens
    if tokens is None or profile.dialect != "openai_chat":
        return request, []
    received = body_fields(request)
    fields = {
        key: received[key]
        for key in _TOKEN_FIELDS
        if received.get(key) is not None and key not in request.body_overrides
    }
    name = profile.max_tokens_field
    if name is None:
        spare = fields.get(_OLD_FIELD) if len(fields) == len(_TOKEN_FIELDS) else None
        if spare is None or fit_sampling(Sampling(max_tokens=spare), profile, thinking=False)[1] == []:
            return request, []
        why = f"{_OLD_FIELD} dropped: the host would refuse it, and {_NEW_FIELD} takes precedence"
        return replace(request, body_overrides=request.body_overrides | {_OLD_FIELD: None}), [
            Change("max_tokens", why, _OLD_FIELD)
        ]
    if fields == {name: tokens}:
        return request, []
    # The value is unchanged, so there is nothing to report.
    return replace(request, body_overrides=request.body_overrides | dict.fromkeys(_TOKEN_FIELDS) | {name: tokens}), []


def _ask_for_usage(request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
    if not request.stream or profile.dialect != "openai_chat" or request.include_usage:
        return request, []
    # A Chat client of an unknown host gets what it asked for; every other dialect has to report usage.
    if profile.host == "generic" and profile.generation == "other" and "openai_chat" in request.extras:
        return request, []
    why = "usage requested: a stream reports it only on request"
    return replace(request, include_usage=True), [Change("include_usage", why, "stream_options")]


def cache_key_of(request: Request) -> str:
    """Cache key that is stable over the turns of a conversation and differs between conversations.

    >>> cache_key_of(Request(model="k3", messages=(Message("user", (Text("hi"),)),)))
    'moonshim-4389270ccc23a707479410ff7af874b6'
    """
    digest = hashlib.sha256()
    first = _first_turn(request)
    prompt = next(filter(None, (_message_text(message) for message in first if message.role == "system")), "")
    user_text = next((_message_text(message) for message in first if message.role == "user"), "")
    for text in (request.model, prompt, user_text, request.user or ""):
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return f"moonshim-{digest.hexdigest()[:32]}"


def _first_turn(request: Request) -> list[Message]:
    """Messages that the first request of the conversation already had: all before the first assistant reply."""
    asked, out = False, list[Message]()
    for message in request.messages:
        if asked and message.role == "assistant":
            break
        asked = asked or message.role == "user"
        out.append(message)
    return out


def _message_text(message: Message) -> str:
    """Text and media references of a message as one string."""
    texts = []
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(_BILLING.sub("", part.text))
        elif isinstance(part, Media):
            texts.append(part.url or part.data or "")
    return "\n".join(text for text in texts if text)
