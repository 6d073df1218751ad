"""Client request -> a request that the host accepts for this model, with every change and its reason.

This module alone defines the order of the steps. A step looks only at earlier messages, never at later ones (law 10),
and leaves a valid request equal to what it was: adapting a request twice gives the same result as adapting it once.

Three cases can still change messages that were sent before: a tool result that arrives after a request without it
failed (`call_order`), tools declared in a message for a host that does not read them there (they move to the `tools`
list), and a reasoning cache that loses or regains an entry.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import DIALECT as CHAT
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.located import LocatedMessage, back_in, placed
from moonshim.engine.request.messages.call_order import legal
from moonshim.engine.request.messages.called_tools import Mend, condition_calls
from moonshim.engine.request.messages.chat_shapes import condition_shapes
from moonshim.engine.request.messages.empty_messages import drop_empty, join_roles, join_turns
from moonshim.engine.request.messages.history_ids import condition_ids
from moonshim.engine.request.messages.legacy_functions import condition_functions
from moonshim.engine.request.messages.media import condition_media, move_media
from moonshim.engine.request.messages.reasoning import condition_reasoning
from moonshim.engine.request.messages.system_prompts import condition_roles, strip_billing, system_as_text
from moonshim.engine.request.messages.tool_results import check_results, mend_results, say_failures
from moonshim.engine.request.parameters import condition_parameters
from moonshim.engine.request.tools.declared import ToolAdapter
from moonshim.engine.request.tools.dynamic_tools import declare_in_messages
from moonshim.engine.values.conversation import Change, Message, Request, Text, Tool, ToolCall, ToolResult
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput

__all__ = ["AdaptedRequest", "adapt_request", "condition_foreign"]

OPENING = "[The conversation begins with the assistant]"


class AdaptedRequest(Struct, frozen=True):
    """The request to send, the changes made, and the tools by the name that the host uses."""

    request: Request
    changes: list[Change]
    tools: dict[str, Tool]
    """The client's tools, keyed by the name under which the host knows them."""


def adapt_request(
    request: Request,
    profile: HostProfile,
    options: KimiOptions,
    *,
    mend_arguments: Mend | None = None,
) -> AdaptedRequest:
    """Adapt a request to a host. Raises `InvalidInput` where that would change its meaning.

    >>> from moonshim.engine.hosts.detect import profile_for
    >>> asked = Request(model="k3", messages=(Message("user", (Text("hi"), Text(""))),))
    >>> made = adapt_request(asked, profile_for(host="kimi-coding", model="k3"), KimiOptions())
    >>> made.request.messages[0].parts, made.changes[0].rule
    ((Text(text='hi'),), 'empty_text')
    """
    changes: list[Change] = []
    messages = placed(request)
    if options.accept_role_tool:
        check_results(messages)
    else:
        messages = mend_results(messages, changes)
    adapter = ToolAdapter(profile, changes)
    tools = None if request.tools is None else adapter.declare(request.tools)
    messages, more = declare_in_messages(messages, adapter, changes, accepted=profile.dynamic_tools)
    messages = _conditioned(messages, profile, adapter, mend_arguments, options, changes)
    # In Messages the system prompt is not a message.
    if not any(profile.dialect == CHAT or one.message.role != "system" for one in messages):
        raise InvalidInput("there is nothing to send: no message says anything", field="messages")
    made = back_in(request, messages)
    if more:
        tools = (tools or ()) + more
    if tools is not request.tools:
        made = replace(made, tools=tools or None)
        if not tools:
            # A list that has become empty is omitted: hosts refuse an empty one.
            made = replace(made, body_overrides=made.body_overrides | {"tools": None})
    choice = adapter.choose(request.tool_choice)
    if choice is not request.tool_choice:
        made = replace(made, tool_choice=choice)
    default = adapter.name_of(options.tool_choice_default)
    if default != options.tool_choice_default:
        options = replace(options, tool_choice_default=default)
    made, found = condition_parameters(made, profile, options)
    return AdaptedRequest(made, changes + found, adapter.by_name)


def condition_foreign(request: Request, profile: HostProfile) -> AdaptedRequest:
    """Fix only what another model may have left in the history: its tool call ids and its reasoning.

    For an unknown host and model, where the client may know better about everything else.
    """
    changes: list[Change] = []
    messages = placed(request)
    if profile.reasoning_in is None or profile.signed_reasoning:
        messages = condition_reasoning(messages, profile, changes)
    messages = condition_ids(messages, profile.history_ids, changes)
    return AdaptedRequest(back_in(request, messages) if changes else request, changes, {})


def _conditioned(
    messages: list[LocatedMessage],
    profile: HostProfile,
    adapter: ToolAdapter,
    mend: Mend | None,
    options: KimiOptions,
    changes: list[Change],
) -> list[LocatedMessage]:
    messages = condition_functions(messages, changes)
    # Many steps apply to tool calls only: skip them when there are none.
    calls = any(isinstance(part, (ToolCall, ToolResult)) for one in messages for part in one.message.parts)
    messages = condition_roles(messages, changes)
    messages = strip_billing(messages, changes)
    messages = condition_media(messages, profile, changes)
    messages = join_turns(messages, profile, changes)
    messages = condition_reasoning(messages, profile, changes)
    if calls:
        messages = condition_calls(messages, adapter.names, adapter.declared, mend, changes)
        # `drop_empty` removes messages that this step leaves empty.
        messages = legal(messages, changes, marks_errors=profile.dialect != CHAT)
    messages = drop_empty(messages, profile, changes)
    messages = move_media(messages, changes, results=profile.dialect == CHAT)
    if not profile.system_anywhere:
        # `move_media` puts media from a system prompt into a message after it, so later prompts are no longer at the
        # top.
        messages = system_as_text(messages, changes)
    if profile.dialect == CHAT:
        messages = say_failures(messages, changes)
        # Only now is it known which message is last.
        messages = condition_shapes(messages, changes)
    if calls:
        messages = condition_ids(messages, profile.history_ids, changes, prefix=options.id_prefix)
    return join_roles(_opened(messages, changes), changes) if profile.merges_roles else messages


def _opened(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Insert a user message before a conversation that starts with the assistant, as Messages requires."""
    first = next((number for number, one in enumerate(messages) if one.message.role != "system"), None)
    if first is None or messages[first].message.role != "assistant":
        return messages
    one = messages[first]
    changes.append(Change("opening", "the first message has to be the user's: one that says who begins", one.place))
    return [*messages[:first], one.as_message(Message("user", (Text(OPENING),))), *messages[first:]]
