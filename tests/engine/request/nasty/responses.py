"""What the clients that speak Responses send: Codex, kimi-code, the AI SDK, pydantic-ai."""

from __future__ import annotations

from typing import Any, Final

from tests.engine.request.nasty.case import PIXEL, Json, Nasty, responses

__all__ = ["RESPONSES"]


def said(role: str, *texts: str, kind: str = "input_text") -> Json:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def answered(*texts: str) -> Json:
    return said("assistant", *texts, kind="output_text")


def called(call_id: str, name: str, arguments: Any = "{}", **more: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(id: str, content: Any = "done", **more: Any) -> Json:
    return {"type": "function_call_output", "call_id": id, "output": content, **more}


def thought(summary: str | None, token: str | None = None, **more: Any) -> Json:
    entries = [] if summary is None else [{"type": "summary_text", "text": summary}]
    return {"type": "reasoning", "summary": entries, "encrypted_content": token, **more}


OBJECT: Final[Json] = {
    "type": "object",
    "properties": {"cmd": {"type": "array", "items": {"type": "string"}}, "workdir": {"type": ["string", "null"]}},
    "required": ["cmd"],
    "additionalProperties": False,
}


def function(name: str, **more: Any) -> Json:
    return {
        "type": "function",
        "name": name,
        "description": f"Use {name}.",
        "strict": False,
        "parameters": OBJECT,
        **more,
    }


PATCH: Final = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" LF'},
}
GITHUB: Final = {
    "type": "namespace",
    "name": "github",
    "description": "Tools of GitHub.",
    "tools": [
        {"type": "function", "name": "search.issues", "description": "Search.", "parameters": OBJECT, "strict": False},
        {"type": "function", "name": "get", "description": "Get.", "parameters": OBJECT, "strict": False},
    ],
}
CODEX: Final[dict[str, Any]] = {
    "tools": [function("shell"), PATCH, GITHUB, {"type": "web_search", "external_web_access": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "019a",
    "text": {"verbosity": "low"},
    "client_metadata": {"x": "y"},
}
PROMPT: Final = said("developer", "You are Codex, a coding agent.")
FOREIGN: Final = "gAAAAABpF0_foreign-token=="

RESPONSES: Final[tuple[Nasty, ...]] = (
    responses(
        "Codex: the prompt as the first item, all kinds of tools, foreign reasoning",
        PROMPT,
        said("user", "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"),
        said("user", "List the files."),
        thought("I list.", FOREIGN),
        called("call_1", "shell", '{"cmd":["ls"]}', id="fc_1"),
        output("call_1", '{"output":"a.txt","metadata":{"exit_code":0}}'),
        thought(None, FOREIGN),
        answered("There is a.txt."),
        said("user", "Patch it."),
        **CODEX,
    ),
    responses(
        "Codex: freeform calls and calls of a namespace",
        PROMPT,
        said("user", "Patch it."),
        thought("I patch.", FOREIGN, id="rs_1", content=None),
        {
            "type": "custom_tool_call",
            "call_id": "call_p",
            "name": "apply_patch",
            "input": '*** Begin Patch\n"x"\n',
            "status": "completed",
        },
        {"type": "custom_tool_call_output", "call_id": "call_p", "output": "Success. Updated a.txt"},
        called("call_g", "search.issues", '{"cmd":["bug"]}', namespace="github"),
        called("call_h", "get", '{"cmd":["1"]}', namespace="github"),
        output("call_g", "issue one"),
        output("call_h", "issue two"),
        said("user", "Thanks."),
        **CODEX,
    ),
    responses(
        "Codex: a picture as the output of a tool",
        PROMPT,
        said("user", "Look."),
        called("call_v", "view_image", '{"path":"a.png"}'),
        output(
            "call_v",
            [
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "high"},
                {"type": "input_text", "text": "the picture"},
            ],
        ),
        sees="input[3]",
        **CODEX,
    ),
    responses(
        "Codex: a call that was interrupted, and a turn that was aborted",
        PROMPT,
        said("user", "Run it."),
        called("call_1", "shell", '{"cmd":["sleep","100"]}'),
        called("call_2", "shell", '{"cmd":["ls"]}'),
        output("call_2", "aborted"),
        said("user", "<turn_aborted>\nStopped.\n</turn_aborted>"),
        said("user", "Go on."),
        **CODEX,
    ),
    responses(
        "Codex: its local shell and a search that the host ran",
        PROMPT,
        said("user", "Run it."),
        {
            "type": "local_shell_call",
            "call_id": "ls_1",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"]},
        },
        {"type": "local_shell_call_output", "call_id": "ls_1", "output": "a.txt"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "kimi"}},
        answered("Found."),
        said("user", "Good."),
        **CODEX,
    ),
    responses(
        "instructions beside a text that is no list",
        input="Hello, who are you?",
        instructions="Be brief.",
        max_output_tokens=5_000_000,
        temperature=0.1,
        top_p=0.2,
        text={"format": {"type": "json_schema", "name": "out", "schema": OBJECT, "strict": True}},
    ),
    responses(
        "the AI SDK refers to reasoning that nobody stored",
        said("system", "Be exact."),
        said("user", "List the files."),
        {"type": "item_reference", "id": "rs_68a1"},
        called("call_1", "shell", '{"cmd":["ls"]}', id="fc_9"),
        output("call_1", "a.txt"),
        tools=[function("shell", strict=True)],
        reasoning={"effort": "high"},
    ),
    responses(
        "pydantic-ai echoes reasoning as think tags",
        said("system", "Use the tools."),
        said("user", "List the files."),
        answered("<think>\nI list them.\n</think>"),
        called("call_1", "shell", '{"cmd":["ls"]}'),
        output("call_1", "a.txt"),
        tools=[function("shell", strict=True)],
        tool_choice="required",
    ),
    responses(
        "results out of order, orphans, and one id twice",
        output("call_0", "a lost result"),
        said("user", "Run them."),
        called("call_1", "shell", '{"cmd":["a"]}'),
        called("call_2", "shell", '{"cmd":["b"]}'),
        output("call_2", "beta"),
        said("user", "Still there?"),
        output("call_1", "alpha"),
        called("call_1", "shell", '{"cmd":["c"]}'),
        output("call_1", "gamma"),
        tools=[function("shell")],
    ),
    responses(
        "arguments and names in broken forms",
        said("user", "Run them."),
        called("call_1", "my.tool", '{"cmd":["a"'),
        called("call_2", "9 lives", ""),
        called("call_3", "shell", {"cmd": ["x"]}),
        output("call_1", "alpha"),
        output("call_2", ""),
        output("call_3", [{"type": "input_text", "text": "gamma"}]),
        tools=[function("my.tool"), function("9 lives"), function("my_tool")],
        tool_choice={"type": "function", "name": "9 lives"},
    ),
    responses(
        "tool_choice allows only some",
        said("user", "Run it."),
        tools=[function("shell"), function("other")],
        tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "shell"}]},
        reasoning={"effort": "none"},
    ),
    responses(
        "a freeform tool that is forced",
        said("user", "Patch it."),
        tools=[PATCH],
        tool_choice={"type": "custom", "name": "apply_patch"},
        reasoning={"effort": "minimal"},
    ),
    responses(
        "empty words and an empty reasoning item",
        said("developer", ""),
        said("user", "", "Hello."),
        thought(None),
        answered(""),
        said("user", ""),
        thought("Only thought."),
        said("user", "Go on."),
    ),
    responses(
        "encrypted reasoning of another host, in plain base64",
        said("user", "List the files."),
        thought(None, "gA+/=="),
        answered("Which?"),
        said("user", "These."),
        thought("Hm.", "gB+/=="),
        called("c1", "shell"),
        output("c1"),
    ),
    responses(
        "searches that the host ran, and a search declared",
        said("user", "Search."),
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "a"}},
        answered("It says so."),
        said("user", "Again."),
        {"type": "web_search_call", "id": "ws_2", "status": "completed", "action": {"type": "search", "query": "b"}},
        {"type": "web_search_call", "id": "ws_3", "status": "failed", "action": {"type": "open_page", "url": "x"}},
        said("user", "Well?"),
        tools=[{"type": "web_search"}],
    ),
    responses(
        "a picture and a document of text from the user",
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Compare."},
                {"type": "input_image", "image_url": "https://example.com/a.png"},
                {"type": "input_file", "filename": "n.txt", "file_data": "data:text/plain;base64,YWxwaGEgYmV0YQ=="},
            ],
        },
        sees="input[0]",
    ),
    responses(
        "short messages without a type, the system in the middle",
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
        {"role": "system", "content": "Speak French."},
        {"role": "user", "content": "Go on."},
        truncation="auto",
        metadata={"a": "b"},
        user="u",
    ),
)
