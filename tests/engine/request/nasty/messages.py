"""What the clients that speak Messages send: Claude Code above all, and broken histories in its blocks."""

from __future__ import annotations

from typing import Any, Final

from tests.engine.request.nasty.case import PIXEL, Json, Nasty, messages

__all__ = ["MESSAGES"]

ASK: Final = {"role": "user", "content": "List the files, then read the first."}
NEXT: Final = {"role": "user", "content": "Go on."}


def schema(**properties: Json) -> Json:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def tool(name: str, input_schema: Json | None = None, **more: Any) -> Json:
    return {"name": name, "description": f"Use {name}.", "input_schema": input_schema or schema(), **more}


def text(said: str, **more: Any) -> Json:
    return {"type": "text", "text": said, **more}


def thought(said: str, **more: Any) -> Json:
    return {"type": "thinking", "thinking": said, **more}


def use(id: str, name: str, given: Any = None) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if given is None else given}


def got(id: str, content: Any = "done", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def ai(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


IMAGE: Final = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
BASH: Final = tool("Bash", schema(command={"type": "string", "description": "What to run"}))
READ: Final = tool("Read", schema(file_path={"type": "string"}, limit={"type": "integer", "exclusiveMinimum": 0}))
TOOLS: Final = [BASH, READ, tool("mcp__late__search", defer_loading=True)]
CLAUDE_CODE: Final[dict[str, Any]] = {
    "system": [
        text("x-anthropic-billing-header: cc_version=2.1.325.a1b; cc_entrypoint=cli; cch=0f3e1;"),
        text("You are Claude Code.", cache_control={"type": "ephemeral"}),
        text("Be concise.", cache_control={"type": "ephemeral"}),
    ],
    "tools": TOOLS,
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "medium"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
    "stream": True,
}

ANSWER: Final = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

MESSAGES: Final[tuple[Nasty, ...]] = (
    messages(
        "Claude Code: the billing line, a system message behind the first user, thinking without a signature",
        user(text("<system-reminder>\nToday is Sunday.\n</system-reminder>"), text("List the files.")),
        {"role": "system", "content": "The model is not a Claude."},
        ai(
            thought("I list them.", signature=""),
            text("Let me look."),
            use("functions_Bash_0", "Bash", {"command": "ls"}),
        ),
        user(got("functions_Bash_0", "a.txt\nb.txt")),
        **CLAUDE_CODE,
    ),
    messages(
        "Claude Code: a system message of blocks, and a failure that is_error",
        user(text("List the files.")),
        {"role": "system", "content": [text("The model is"), text("not a Claude.")]},
        ai(thought("Hm.", signature="EqQBCkYIAxgCKkA="), use("toolu_1", "Bash", {"command": "false"})),
        user(got("toolu_1", "Exit code 1", is_error=True), text("Try otherwise.")),
        **CLAUDE_CODE,
    ),
    messages(
        "Claude Code: a picture in a tool result",
        user(text("Look at a.png.")),
        ai(thought("I look.", signature=""), use("toolu_2", "Read", {"file_path": "a.png", "limit": 1})),
        user(got("toolu_2", [IMAGE, text("The picture.")], cache_control={"type": "ephemeral"})),
        sees="messages[2]",
        **CLAUDE_CODE,
    ),
    messages(
        "Claude Code: its search for tools gives back references",
        user(text("Search for a tool.")),
        ai(thought("Which?", signature=""), use("toolu_3", "ToolSearch", {"query": "late"})),
        user(got("toolu_3", [{"type": "tool_reference", "tool_name": "mcp__late__search"}])),
        ai(use("toolu_4", "mcp__late__search", {})),
        user(got("toolu_4", [text("found it")])),
        **CLAUDE_CODE,
    ),
    messages(
        "Claude Code asks for a title on the small model, with a prefill",
        ASK,
        {"role": "assistant", "content": "{"},
        system="Write a title as JSON.",
        temperature=0.3,
        stop_sequences=["}"],
    ),
    messages(
        "Claude Code's web search beside its tools",
        ASK,
        tools=[BASH, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    ),
    messages(
        "signatures that came from another host",
        ASK,
        ai(
            thought("From Anthropic.", signature="ErUB-_foreign=="),
            text("Well."),
            use("t1", "Bash", {"command": "a"}),
        ),
        user(got("t1", "alpha")),
        ai(thought("Again.", signature="EmwKAhgBEgy3va3pzix"), use("t2", "Bash", {"command": "b"})),
        user(got("t2", "beta")),
        tools=TOOLS,
        thinking={"type": "enabled", "budget_tokens": 10000},
    ),
    messages(
        "a signature in plain base64, as Anthropic's are",
        ASK,
        ai(thought("From Anthropic.", signature="ErUB+/x=="), text("Well.")),
        NEXT,
        ai(thought("", signature="ErUB+/y=="), use("t1", "Bash", {"command": "a"})),
        user(got("t1", "alpha")),
        tools=TOOLS,
    ),
    messages(
        "thinking that was redacted, before words and before a call",
        ASK,
        ai({"type": "redacted_thinking", "data": "EmwK"}, text("Well.")),
        NEXT,
        ai({"type": "redacted_thinking", "data": "EmwK"}, use("t1", "Bash", {"command": "a"})),
        user(got("t1", "alpha")),
        tools=TOOLS,
    ),
    messages(
        "two thinking blocks, and thinking behind the words",
        ASK,
        ai(thought("One.", signature=""), thought("Two."), text("Said."), use("t1", "Bash", {"command": "a"})),
        user(got("t1", "alpha")),
        ai(text("First words."), thought("Then thoughts."), use("t2", "Read", {"file_path": "b", "limit": 2})),
        user(got("t2", "beta")),
        tools=TOOLS,
    ),
    messages(
        "the thinking was dropped by the client",
        ASK,
        ai(use("t1", "Bash", {"command": "a"}), use("t2", "Bash", {"command": "b"})),
        user(got("t1", "alpha"), got("t2", "beta")),
        ai(text("So."), use("t3", "Bash", {"command": "c"})),
        user(got("t3", "gamma")),
        tools=TOOLS,
        thinking={"type": "enabled", "budget_tokens": 1024},
    ),
    messages(
        "ids of other providers, with characters that Messages refuses, and one id twice",
        ASK,
        ai(use("functions.Bash:0", "Bash", {"command": "a"}), use("call 2", "Bash", {"command": "b"})),
        user(got("functions.Bash:0", "alpha"), got("call 2", "beta")),
        ai(use("functions.Bash:0", "Bash", {"command": "c"})),
        user(got("functions.Bash:0", "gamma")),
        ai(use("functions_Bash_0", "Bash", {"command": "d"})),
        user(got("functions_Bash_0", "delta")),
        tools=TOOLS,
    ),
    messages(
        "results behind words, out of order, and one missing",
        ASK,
        ai(
            use("t1", "Bash", {"command": "a"}),
            use("t2", "Bash", {"command": "b"}),
            use("t3", "Bash", {"command": "c"}),
        ),
        user(text("Here."), got("t3", "gamma"), text("And"), got("t1", "alpha")),
        tools=TOOLS,
    ),
    messages(
        "results in two messages of the user",
        ASK,
        ai(use("t1", "Bash", {"command": "a"}), use("t2", "Bash", {"command": "b"})),
        user(got("t1", "alpha")),
        user(got("t2", "beta")),
        user(text("Both are there.")),
        ai(text("Fine.")),
        ai(text("Very fine.")),
        NEXT,
        tools=TOOLS,
    ),
    messages(
        "a result without its call, and a call at the end without its result",
        user(got("gone", "a lost result"), text("Hello.")),
        ai(text("Hm."), use("t9", "Bash", {"command": "z"})),
        tools=TOOLS,
    ),
    messages(
        "empty blocks, empty content, results without content",
        user(text(""), text("Hello.")),
        ai(text(""), use("t1", "Bash", {"command": "a"})),
        user(got("t1", "")),
        ai(text("")),
        user(text("")),
        ai(use("t2", "Bash", {"command": "b"}), text("")),
        user(got("t2", []), text("")),
        ai(use("t3", "Bash", {"command": "c"})),
        user(got("t3", [text(""), text("here")]), text("Go on.")),
        tools=TOOLS,
    ),
    messages("an assistant message that is an empty string", ASK, {"role": "assistant", "content": ""}, NEXT),
    messages("the assistant begins", {"role": "assistant", "content": "Hello."}, NEXT),
    messages(
        "results whose only block is empty text, and a failure that says nothing",
        ASK,
        ai(use("t1", "Bash", {"command": "a"}), use("t2", "Bash", {"command": "b"}), use("t3", "Bash", {})),
        user(got("t1", [text("")]), got("t2", ""), got("t3", [text("")], is_error=True)),
        tools=TOOLS,
    ),
    messages(
        "repeated results, alone and before words",
        ASK,
        ai(use("t1", "Bash", {"command": "a"})),
        user(got("t1", "alpha")),
        ai(text("There.")),
        user(got("t1", "alpha")),
        ai(text("As I said.")),
        user(got("t1", "alpha"), text("Once more.")),
        ai(text("Well.")),
        NEXT,
        tools=TOOLS,
    ),
    messages(
        "inputs that are texts, lists and nothing",
        ASK,
        ai(
            use("t1", "Bash", '{"command": "ls"}'),
            use("t2", "Bash", ["ls"]),
            {"type": "tool_use", "id": "t3", "name": "Bash"},
            {"type": "tool_use", "id": "t4", "name": "Bash", "input": None},
            use("t5", "Bash", "ls -l"),
        ),
        user(*(got(f"t{n}", f"result {n}") for n in range(1, 6))),
        tools=TOOLS,
    ),
    messages(
        "thinking disabled, with a forced tool",
        ASK,
        tools=TOOLS,
        thinking={"type": "disabled"},
        tool_choice={"type": "tool", "name": "Bash"},
        temperature=0,
    ),
    messages(
        "thinking disabled beside an effort",
        ASK,
        thinking={"type": "disabled"},
        output_config={"effort": "medium"},
    ),
    messages(
        "the tools that Anthropic has defined and the client runs",
        ASK,
        ai(use("t1", "bash", {"command": "ls"})),
        user(got("t1", "alpha")),
        tools=[
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
            {"type": "memory_20250818", "name": "memory"},
        ],
    ),
    messages(
        "any tool, with thinking",
        ASK,
        tools=TOOLS,
        thinking={"type": "enabled", "budget_tokens": 4096},
        tool_choice={"type": "any"},
    ),
    messages(
        "no tool, with thinking",
        ASK,
        tools=TOOLS,
        thinking={"type": "adaptive"},
        tool_choice={"type": "none"},
        output_config={"effort": "xhigh"},
    ),
    messages(
        "effort max and a schema for the answer",
        ASK,
        output_config={"effort": "max", "format": {"type": "json_schema", "schema": ANSWER}},
    ),
    messages("effort low alone", ASK, output_config={"effort": "low"}),
    messages(
        "numbers that Kimi fixes", ASK, temperature=0.2, top_p=0.5, top_k=40, stop_sequences=[f"s{n}" for n in range(5)]
    ),
    messages("more output than any model has", ASK, max_tokens=2_000_000),
    messages(
        "a document of text, and a search result",
        user(
            text("Sum this up."),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "alpha beta"},
                "title": "Notes",
                "citations": {"enabled": True},
            },
            {
                "type": "search_result",
                "source": "https://example.com",
                "title": "Found",
                "content": [text("gamma delta")],
            },
        ),
    ),
    messages(
        "a picture by URL",
        user({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}, text("What is it?")),
        sees="messages[0]",
    ),
    messages(
        "names of tools that Kimi refuses",
        ASK,
        ai(use("t1", "1st tool", {}), use("t2", "mcp.server/tool", {"a": [1, {"b": None}]})),
        user(got("t1", "alpha"), got("t2", "beta")),
        tools=[
            tool("1st tool"),
            tool("mcp.server/tool"),
            tool("mcp_server_tool"),
            {"type": "custom", "name": "plain", "input_schema": schema()},
        ],
        tool_choice={"type": "tool", "name": "1st tool"},
    ),
    messages(
        "the search that Anthropic ran itself",
        ASK,
        ai(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "kimi"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": "https://example.com",
                        "title": "Kimi",
                        "encrypted_content": "abc",
                    }
                ],
            },
            text("It says so."),
        ),
        NEXT,
    ),
)
