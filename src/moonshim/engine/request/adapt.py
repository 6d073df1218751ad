"""Client request -> a request that the host accepts for this model, with every change and its reason.

This module alone defines the order of the steps. A step looks only at earlier messages, never at later ones (law 11),
and leaves a valid request equal to what it was: adapting a request twice gives the same result as adapting it once.

Three cases can still change messages that were sent before: a tool result that arrives after a request without it
failed (`call_order`), tools declared in a message for a host that does not read them there (they move to the `tools`
list), and a reasoning cache that loses or regains an entry.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import DIALECT as CHAT
from moonshim.engine.dialects.openai_chat.extras import asks_for_search
from moonshim.engine.dialects.openai_responses.extras import max_tool_calls
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.located import LocatedMessage, locate_messages, replace_messages
from moonshim.engine.request.messages.call_order import order_calls
from moonshim.engine.request.messages.called_tools import MendArguments, adapt_calls
from moonshim.engine.request.messages.chat_fields import adapt_chat_fields
from moonshim.engine.request.messages.documents import Documents
from moonshim.engine.request.messages.empty_messages import drop_empty, merge_assistant_messages, merge_user_messages
from moonshim.engine.request.messages.history_ids import assign_ids
from moonshim.engine.request.messages.legacy_functions import convert_function_messages
from moonshim.engine.request.messages.media import adapt_media, move_media
from moonshim.engine.request.messages.reasoning import adapt_reasoning
from moonshim.engine.request.messages.search_history import pair_searches
from moonshim.engine.request.messages.system_prompts import normalize_roles, strip_billing, system_as_text
from moonshim.engine.request.messages.tool_results import (
    check_results,
    fill_empty_ids,
    mark_failures,
    mend_results,
)
from moonshim.engine.request.parameters import adapt_parameters
from moonshim.engine.request.structured_output import add_instructions, demand_answer
from moonshim.engine.request.tools.declared import ToolAdapter
from moonshim.engine.request.tools.dynamic_tools import declare_in_messages
from moonshim.engine.request.tools.tool_changes import apply_tool_changes
from moonshim.engine.values.conversation import (
    Change,
    Message,
    Request,
    SearchSettings,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from moonshim.engine.values.expected import ExpectedAnswer
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.web_search import SEARCH_NAME, SearchAccess, SearchTool
from moonshim.errors import CannotExpress, InvalidInput

__all__ = ["AdaptedRequest", "adapt_foreign_history", "adapt_request"]

OPENING_TEXT = "[The conversation begins with the assistant]"


class AdaptedRequest(Struct, frozen=True):
    """The request to send, the changes made, and the tools by the name that the host uses."""

    request: Request
    changes: list[Change]
    tools: dict[str, Tool]
    """The client's tools, keyed by the name under which the host knows them."""
    search: SearchTool | None = None
    """The web search that is answered in rounds."""
    expected: ExpectedAnswer | None = None
    """What the client demands of the response, and the host does not guarantee."""


def adapt_request(
    request: Request,
    profile: HostProfile,
    options: KimiOptions,
    *,
    mend_arguments: MendArguments | None = None,
    search_access: SearchAccess | None = None,
    documents: Documents | None = None,
    messages_field: str = "messages",
) -> AdaptedRequest:
    """Adapt a request to a host. Raises `InvalidInput` where that would change its meaning.

    `documents`: what was extracted from the documents in it. `messages_field`: the client's field with the messages,
    for errors.

    >>> from moonshim.engine.hosts.detect import profile_for
    >>> request = Request(model="k3", messages=(Message("user", (Text("hi"), Text(""))),))
    >>> adapted = adapt_request(request, profile_for(host="kimi-coding", model="k3"), KimiOptions())
    >>> adapted.request.messages[0].parts, adapted.changes[0].rule
    ((Text(text='hi'),), 'empty_text')
    """
    changes: list[Change] = []
    messages = locate_messages(request)
    if options.accept_role_tool:
        messages = fill_empty_ids(messages, changes)
        check_results(messages)
    else:
        messages = mend_results(messages, changes)
    if search_access is not None:
        request = _declare_search_option(request, profile, search_access)
    declared = request.tools
    if profile.dialect == CHAT or not profile.typed_tools:  # a Messages host of Claude reads them
        messages, declared = apply_tool_changes(messages, declared, changes)
    adapter = ToolAdapter(profile, changes, search_access)
    tools = None if declared is None else adapter.declare(declared)
    if adapter.search is not None:
        messages = pair_searches(messages, adapter.search, changes)
    messages, moved_tools = declare_in_messages(messages, adapter, changes, accepted=profile.dynamic_tools)
    demand = demand_answer(request, profile, adapter)
    request = demand.request
    changes += demand.changes
    messages = add_instructions(messages, demand.instructions, profile)
    messages = _adapt_messages(messages, profile, adapter, mend_arguments, options, documents or {}, changes)
    # In Messages the system prompt is not a message.
    if not any(profile.dialect == CHAT or located.message.role != "system" for located in messages):
        raise InvalidInput("nothing to send: no message has any content", field=messages_field)
    adapted = replace_messages(request, messages)
    if moved_tools:
        tools = (tools or ()) + moved_tools
    if tools is not request.tools:
        adapted = replace(adapted, tools=tools or None)
        if not tools:
            # A list that has become empty is omitted: hosts refuse an empty one.
            adapted = replace(adapted, body_overrides=adapted.body_overrides | {"tools": None})
    choice = adapter.choose(request.tool_choice)
    if choice is not request.tool_choice:
        adapted = replace(adapted, tool_choice=choice)
    default = adapter.name_of(options.tool_choice_default)
    if default != options.tool_choice_default:
        options = replace(options, tool_choice_default=default)
    adapted, more_changes = adapt_parameters(adapted, profile, options)
    if adapter.search is not None and (request.sampling.n or 1) > 1:
        raise CannotExpress("n must be 1 with a web search, whose rounds continue a single choice", field="n")
    search = _limit_calls(adapter.search, request)
    return AdaptedRequest(adapted, changes + more_changes, adapter.by_name, search, demand.expected)


def _declare_search_option(request: Request, profile: HostProfile, access: SearchAccess) -> Request:
    """Chat's `web_search_options` as a tool, if somebody can run it."""
    if not asks_for_search(request) or (access == "none" and profile.web_search is None):
        return request
    tool = Tool(SEARCH_NAME, kind="server", search=SearchSettings())
    overrides = request.body_overrides | {"web_search_options": None}
    return replace(request, tools=(*(request.tools or ()), tool), body_overrides=overrides)


def _limit_calls(search: SearchTool | None, request: Request) -> SearchTool | None:
    """In Responses, the limit is a field of the request."""
    limit = max_tool_calls(request)
    if search is None or limit is None:
        return search
    return replace(search, settings=replace(search.settings, max_uses=limit))


def adapt_foreign_history(request: Request, profile: HostProfile) -> AdaptedRequest:
    """Fix only what another model may have left in the history: its tool call ids and its reasoning.

    For an unknown host and model, where the client may know better about everything else.
    """
    changes: list[Change] = []
    messages = locate_messages(request)
    if profile.reasoning_in is None or profile.signed_reasoning:
        messages = adapt_reasoning(messages, profile, changes)
    messages = assign_ids(messages, profile.history_ids, changes)
    return AdaptedRequest(replace_messages(request, messages) if changes else request, changes, {})


def _adapt_messages(
    messages: list[LocatedMessage],
    profile: HostProfile,
    adapter: ToolAdapter,
    mend: MendArguments | None,
    options: KimiOptions,
    documents: Documents,
    changes: list[Change],
) -> list[LocatedMessage]:
    messages = convert_function_messages(messages, changes)
    # Many steps apply to tool calls only: skip them when there are none.
    calls = any(isinstance(part, (ToolCall, ToolResult)) for located in messages for part in located.message.parts)
    messages = normalize_roles(messages, changes)
    messages = strip_billing(messages, changes)
    messages = adapt_media(messages, profile, changes, documents)
    messages = merge_assistant_messages(messages, profile, changes)
    messages = adapt_reasoning(messages, profile, changes)
    if calls:
        messages = adapt_calls(messages, adapter.names, adapter.declared, mend, changes)
        # `drop_empty` removes messages that this step leaves empty.
        messages = order_calls(messages, changes, marks_errors=profile.dialect != CHAT)
    messages = drop_empty(messages, profile, changes)
    messages = move_media(messages, changes, results=profile.dialect == CHAT)
    if not profile.system_anywhere:
        # `move_media` puts media from a system prompt into a message after it, so later prompts are no longer at the
        # top.
        messages = system_as_text(messages, changes)
    if profile.dialect == CHAT:
        messages = mark_failures(messages, changes)
        # Only now is it known which message is last.
        messages = adapt_chat_fields(messages, changes)
    if calls:
        messages = assign_ids(messages, profile.history_ids, changes, prefix=options.id_prefix)
    return merge_user_messages(_add_opening_message(messages, changes), changes) if profile.merges_roles else messages


def _add_opening_message(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Insert a user message before a conversation that starts with the assistant, as Messages requires."""
    first = next((number for number, located in enumerate(messages) if located.message.role != "system"), None)
    if first is None or messages[first].message.role != "assistant":
        return messages
    located = messages[first]
    changes.append(
        Change(
            "opening",
            "user message added at the start: the host requires the first message to be the user's",
            located.place,
        )
    )
    return [*messages[:first], located.with_message(Message("user", (Text(OPENING_TEXT),))), *messages[first:]]
