"""A request of any client -> a request that this host accepts for this model, with every change and its reason.

The order of the steps is stated here and nowhere else. Each looks at what was said before and
never at what comes later (law 10), and changes nothing in a request that is right already:
that comes back equal, and conditioning a second time changes nothing more.

Three things can still change what was sent: a result that comes after a request without it
failed (`legal_messages`), tools that a message declares where the host reads none in messages
(they join the list of tools), and a memory that forgets, or remembers again, what was thought.
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
    """What to send, what was changed, and how to read the names in the answer."""

    request: Request
    changes: list[Change]
    tools: dict[str, Tool]
    """The client's tools by the names under which the host knows them."""


def adapt_request(
    request: Request,
    profile: HostProfile,
    options: KimiOptions,
    *,
    mend_arguments: Mend | None = None,
) -> AdaptedRequest:
    """Make a request right for a host. Raises `InvalidInput` where that would change what it means.

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
    # In Messages the system prompt is no message.
    if not any(profile.dialect == CHAT or one.message.role != "system" for one in messages):
        raise InvalidInput("there is nothing to send: no message says anything", field="messages")
    made = back_in(request, messages)
    if more:
        tools = (tools or ()) + more
    if tools is not request.tools:
        made = replace(made, tools=tools or None)
        if not tools:
            # A list that has become empty is not sent at all: hosts refuse an empty one.
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
    """Only what another model may have left in the history: its identifiers and its reasoning.

    For a host and a model of which nothing is known, and whose client may know better in everything else.
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
    # Much is about calls alone: nobody else has to wait for it.
    calls = any(isinstance(part, (ToolCall, ToolResult)) for one in messages for part in one.message.parts)
    messages = condition_roles(messages, changes)
    messages = strip_billing(messages, changes)
    messages = condition_media(messages, profile, changes)
    messages = join_turns(messages, profile, changes)
    messages = condition_reasoning(messages, profile, changes)
    if calls:
        messages = condition_calls(messages, adapter.names, adapter.declared, mend, changes)
        # A message of which nothing is left is empty like any other.
        messages = legal(messages, changes, marks_errors=profile.dialect != CHAT)
    messages = drop_empty(messages, profile, changes)
    messages = move_media(messages, changes, results=profile.dialect == CHAT)
    if not profile.system_anywhere:
        # What a prompt showed stands behind it, and no prompt is at the top behind that.
        messages = system_as_text(messages, changes)
    if profile.dialect == CHAT:
        messages = say_failures(messages, changes)
        # Only now it is known which message is the last.
        messages = condition_shapes(messages, changes)
    if calls:
        messages = condition_ids(messages, profile.history_ids, changes, prefix=options.id_prefix)
    return join_roles(_opened(messages, changes), changes) if profile.merges_roles else messages


def _opened(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """A conversation that begins with the model gets a first word of the user: Messages wants that."""
    first = next((number for number, one in enumerate(messages) if one.message.role != "system"), None)
    if first is None or messages[first].message.role != "assistant":
        return messages
    one = messages[first]
    changes.append(Change("opening", "the first message has to be the user's: one that says who begins", one.place))
    return [*messages[:first], one.as_message(Message("user", (Text(OPENING),))), *messages[first:]]
