"""What the clients that speak Chat send: kimi-code, opencode, qwen-code, the SDKs and the frameworks."""

from __future__ import annotations

from typing import Any, Final

from tests.engine.request.nasty.case import PIXEL, Json, Nasty, ai, call, chat, function, result

__all__ = ["CLIENTS"]

SYSTEM: Final = {"role": "system", "content": "You are an agent in a terminal."}
ASK: Final = {"role": "user", "content": "List the files, then read the first."}
BASH: Final[Json] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "The command"},
        "timeout": {"type": "integer", "minimum": 0, "default": 60},
    },
    "required": ["command"],
    "additionalProperties": False,
    "$schema": "http://json-schema.org/draft-07/schema#",
}
READ: Final[Json] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS: Final = [function("Bash", BASH), function("Read", READ)]
STREAM: Final[dict[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}


def parts(*texts: str) -> list[Json]:
    return [{"type": "text", "text": text} for text in texts]


CLIENTS: Final[tuple[Nasty, ...]] = (
    chat(
        "kimi-code rewrites ids, leaves content out, asks for the whole window and keeps all reasoning",
        SYSTEM,
        ASK,
        ai(call("functions_Bash_0", "Bash", '{"command":"ls"}'), reasoning_content="First the list."),
        result("functions_Bash_0", "a.txt\nb.txt"),
        ai(call("functions_Read_1", "Read", '{"path":"a.txt"}'), reasoning_content=""),
        result("functions_Read_1", "alpha"),
        tools=TOOLS,
        thinking={"type": "enabled", "keep": "all"},
        max_completion_tokens=262144,
        prompt_cache_key="session-1",
        **STREAM,
    ),
    chat(
        "kimi-code after a rewind: the ids of K3 come again",
        SYSTEM,
        ASK,
        ai(call("Bash_212", "Bash", '{"command":"ls"}'), reasoning_content="One."),
        result("Bash_212", "first"),
        ai(call("Bash_212", "Bash", '{"command":"pwd"}'), reasoning_content="Two."),
        result("Bash_212", "second"),
        ai(call("Bash_212_2", "Bash", '{"command":"id"}'), reasoning_content="Three."),
        result("Bash_212_2", "third"),
        tools=TOOLS,
        reasoning_effort="high",
    ),
    chat(
        "Kimi's own reasoning_details come back with the index of the stream",
        ASK,
        ai(
            call("Bash:0", "Bash", '{"command":"ls"}'),
            reasoning_details=[
                {"index": 0, "type": "summary", "summary": "Listing first."},
                {"index": 1, "type": "encrypted", "encrypted": "gAAAAABo"},
            ],
        ),
        result("Bash:0", "a.txt"),
        tools=TOOLS,
    ),
    chat(
        "OpenRouter's reasoning_details come back beside the plain text",
        ASK,
        ai(
            call("call_1", "Bash", '{"command":"ls"}'),
            content=None,
            reasoning="Listing first.",
            reasoning_details=[{"type": "reasoning.text", "text": "Listing first.", "format": "unknown"}],
        ),
        result("call_1", "a.txt"),
        tools=TOOLS,
        reasoning={"effort": "high", "exclude": False},
        provider={"order": ["moonshotai"]},
    ),
    chat(
        "opencode echoes reasoning_content beside empty content",
        SYSTEM,
        {"role": "system", "content": "Here is some useful information about the environment: Linux."},
        ASK,
        ai(
            call("call_8f1c2b", "Bash", '{"command":"ls","timeout":5}'),
            call("call_8f1c2c", "Read", '{"path":"a.txt"}'),
            content="",
            reasoning_content="Both at once.",
        ),
        result("call_8f1c2b", "a.txt"),
        result("call_8f1c2c", "alpha"),
        ai(content="Done.", reasoning_content="That was easy."),
        {"role": "user", "content": "Thanks. Now delete it."},
        tools=TOOLS,
        tool_choice="auto",
        max_tokens=32000,
        temperature=0,
        top_p=1,
        **STREAM,
    ),
    chat(
        "opencode asks the small model for a title, without tools",
        {"role": "system", "content": "You are a title generator."},
        {"role": "user", "content": "Generate a title for this conversation:\n"},
        {"role": "user", "content": "List the files."},
        temperature=0.5,
        max_tokens=32000,
        **STREAM,
    ),
    chat(
        "qwen-code sends lists of text parts everywhere",
        {"role": "system", "content": parts("You are Qwen Code.", "Be brief.")},
        {"role": "user", "content": parts("This is the context.", "List the files.")},
        ai(call("call_a1", "Bash", '{"command":"ls"}'), content=parts("I will list them.")),
        {"role": "tool", "tool_call_id": "call_a1", "content": parts("a.txt", "b.txt")},
        {"role": "user", "content": parts("And?")},
        tools=TOOLS,
        metadata={"sessionId": "s", "promptId": "p"},
        enable_thinking=True,
        **STREAM,
    ),
    chat(
        "langchain drops the reasoning, and streams without asking for the usage",
        ASK,
        ai(call("chatcmpl-tool-0a", "Bash", '{"command": "ls"}'), content=""),
        result("chatcmpl-tool-0a", "a.txt"),
        ai(call("chatcmpl-tool-0b", "Read", '{"path": "a.txt"}'), content=""),
        result("chatcmpl-tool-0b", "alpha"),
        tools=TOOLS,
        stream=True,
        temperature=0.7,
        parallel_tool_calls=False,
    ),
    chat(
        "the AI SDK drops the reasoning beside text and calls",
        {"role": "developer", "content": "Be exact."},
        ASK,
        ai(call("tOoLu9", "Bash", '{"command":"ls"}'), content="Let me see."),
        result("tOoLu9", '{"files":["a.txt"]}'),
        tools=TOOLS,
        tool_choice="auto",
        reasoning_effort="medium",
        max_completion_tokens=4096,
        stream=True,
    ),
    chat(
        "instructor wants JSON and forces a tool",
        {"role": "system", "content": "Answer as JSON."},
        {"role": "user", "content": "Extract: Jason is 25 years old."},
        tools=[
            function(
                "User",
                {
                    "type": "object",
                    "title": "User",
                    "properties": {
                        "name": {"title": "Name", "type": "string"},
                        "age": {"title": "Age", "anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                    },
                    "required": ["name", "age"],
                },
            )
        ],
        tool_choice={"type": "function", "function": {"name": "User"}},
        response_format={"type": "json_object"},
        temperature=0.0,
    ),
    chat(
        "instructor asks again after its validation failed",
        {"role": "user", "content": "Extract: Jason is 25 years old."},
        ai(call("call_u", "User", '{"name": 1}'), content=None),
        result("call_u", "Validation Error found:\nname: str required"),
        {"role": "user", "content": "Recall the function correctly, fix the errors."},
        tools=[function("User", {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})],
        tool_choice={"type": "function", "function": {"name": "User"}},
    ),
    chat(
        "pydantic-ai sends strict tools and requires one of them",
        {"role": "system", "content": "Use the tools."},
        ASK,
        ai(call("pyd_1", "get_weather", '{"city":"Paris"}'), content="<think>\nParis it is.\n</think>\nLooking."),
        result("pyd_1", "sunny"),
        tools=[
            function(
                "get_weather",
                {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"], "type": "string"}},
                    "required": ["city", "unit"],
                    "additionalProperties": False,
                },
                strict=True,
            ),
            function(
                "final_result",
                {
                    "type": "object",
                    "properties": {"answer": {"$ref": "#/$defs/Answer", "description": "The answer."}},
                    "$defs": {
                        "Answer": {
                            "type": "object",
                            "properties": {"text": {"type": "string"}, "score": {"type": ["number", "null"]}},
                            "required": ["text"],
                        }
                    },
                    "required": ["answer"],
                },
                strict=True,
            ),
        ],
        tool_choice="required",
    ),
    chat(
        "llm sends a picture by URL and one by value",
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Which is brighter?"},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "high"}},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        },
        sees="messages[0]",
    ),
    chat(
        "a tool gives back a picture, in a list of parts",
        ASK,
        ai(call("shot_1", "screenshot", "{}"), reasoning_content="Look."),
        result(
            "shot_1",
            [
                {"type": "text", "text": "The screen:"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        ),
        tools=[function("screenshot")],
        sees="messages[2]",
    ),
    chat(
        "a document of text in a file part",
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Sum it up."},
                {
                    "type": "file",
                    "file": {"filename": "notes.txt", "file_data": "data:text/plain;base64,YWxwaGEgYmV0YQ=="},
                },
            ],
        },
    ),
    chat(
        "the history of 2023: function_call, and messages of role function",
        {"role": "user", "content": "What is the weather?"},
        ai(content=None, function_call={"name": "get_weather", "arguments": '{"city": "Paris"}'}),
        {"role": "function", "name": "get_weather", "content": "sunny"},
        ai(content=None, function_call={"name": "get_weather", "arguments": '{"city": "Rome"}'}),
        {"role": "function", "name": "get_weather", "content": "rain"},
        tools=[function("get_weather", READ)],
    ),
    chat(
        "every message has a name",
        {"role": "system", "name": "rules", "content": "Be kind."},
        {"role": "user", "name": "Jo_1", "content": "Hello there."},
        ai(call("n1", "Bash", '{"command":"id"}'), name="helper", content="I look.", reasoning_content="Hm."),
        {"role": "tool", "name": "Bash", "tool_call_id": "n1", "content": "root"},
        tools=TOOLS,
        user="user-1",
    ),
    chat(
        "fields of OpenAI that nobody else knows",
        ASK,
        ai(content="No.", refusal=None, annotations=[], audio=None),
        {"role": "user", "content": "Yes."},
        store=False,
        service_tier="auto",
        logit_bias={},
        logprobs=False,
        seed=7,
        verbosity="low",
        safety_identifier="x",
        prediction=None,
        modalities=["text"],
        metadata={"a": "b"},
    ),
    chat(
        "MCP servers bring schemas of all kinds",
        ASK,
        tools=[
            function(
                "mcp__notion__create",
                {
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "type": "object",
                    "definitions": {"Ref": {"type": "object", "properties": {"id": {"type": "string"}}}},
                    "properties": {
                        "parent": {"anyOf": [{"$ref": "#/definitions/Ref"}, {"type": "null"}], "type": "object"},
                        "icon": {"oneOf": [{"type": "string"}, {"$ref": "#/definitions/Ref"}], "description": "Icon."},
                        "kind": {"const": "page"},
                        "size": {"type": ["integer", "string", "null"], "format": "int32", "exclusiveMinimum": 0},
                        "meta": {"type": "object", "additionalProperties": {"type": "string"}},
                        "list": {"type": "array", "items": {}, "uniqueItems": True, "minItems": 1},
                        "any": {},
                        "yes": True,
                        "level": {"enum": ["low", "high", None]},
                        "numbers": {"enum": [1, 2, 3]},
                    },
                    "required": ["parent", "not_there"],
                },
            ),
            function(
                "mcp__tree__walk",
                {
                    "type": "object",
                    "properties": {"node": {"$ref": "#/$defs/Node"}},
                    "$defs": {
                        "Node": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string", "examples": ["root"]},
                                "below": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                            },
                            "required": ["name"],
                        }
                    },
                },
            ),
            function(
                "mcp__all__of", {"allOf": [READ, {"properties": {"deep": {"type": "boolean", "nullable": True}}}]}
            ),
            function("mcp__bare", {"type": "object"}),
            function("mcp__nothing", None),
            function("mcp__odd", {"properties": {"q": {"description": "No type."}}, "required": []}),
        ],
    ),
)
