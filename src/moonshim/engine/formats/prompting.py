"""Tools, calls and results -> the text that models of a text-only tool format were trained on.

| format | tools | call | result |
|---|---|---|---|
| hermes | JSON in `<tools>` | `<tool_call>` around `{"name": …, "arguments": {…}}` | `<tool_response>` |
| xml | JSON in `<tools>` | `<tool_call>`, `<function=name>`, `<parameter=key>` | `<tool_response>` |
| llama | indented JSON | `{"name": …, "parameters": {…}}`; after text, `<|python_tag|>` first | `{"output": …}` |

The descriptions use the wording of the templates of Hermes and Qwen (hermes), Qwen3-Coder and related models (xml) and
Llama 3 (llama). The grammars `hermes`, `qwen_xml` and `llama_json` parse the calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.formats.detect import TEXT_FORMATS, ToolFormat
from moonshim.engine.formats.tools import format_tools
from moonshim.engine.values.conversation import (
    Media,
    Message,
    Part,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from moonshim.errors import InvalidInput

__all__ = ["as_text", "calls_as_text", "describe_tools", "results_as_text"]

_HERMES: Final = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>

The result of each call is given to you within <tool_response></tool_response> XML tags."""

_XML: Final = """\
# Tools

You have access to the following functions:

<tools>
{tools}
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within \
<tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell \
the user about function calls
</IMPORTANT>"""

_LLAMA: Final = """\
You have access to the following functions. To call a function, please respond with JSON for a function call.
Respond in the format {{"name": function name, "parameters": dictionary of argument name and its value}}. \
Do not use variables.

{tools}

Respond with nothing but the JSON when you call a function. What it returns is given to you as {{"output": …}}; \
when no function is needed, or none helps, answer in natural language."""

FAILED: Final = "the tool failed"
_MUST: Final = {
    "required": "You MUST call a function now.",
    "tool": "You MUST call the function {name} now.",
}


class _TextFormat(Struct, frozen=True):
    """How one format writes tools, calls and results."""

    prompt: str
    tool: Callable[[Any], str]
    call: Callable[[ToolCall], str]
    result: Callable[[str], str]
    between_tools: str = "\n"
    between_calls: str = "\n"
    before_calls: str = "\n"
    """Separator between text and the calls after it."""


def describe_tools(tools: Sequence[Tool], format: str, *, choice: ToolChoice | None = None) -> str:
    """The part of the system prompt that describes the tools; empty if there are none.

    Raises `CannotExpress` for custom tools and for tools that a host runs itself, which these formats cannot
    represent.

    >>> print(describe_tools([Tool("ls", "Lists files.", {"type": "object"})], "hermes").splitlines()[6])
    {"type": "function", "function": {"name": "ls", "description": "Lists files.", "parameters": {"type": "object"}}}
    """
    words = _text_format(format)
    if choice is not None and choice.allowed is not None:
        tools = [tool for tool in tools if tool.name in choice.allowed]
    if not tools or (choice is not None and choice.mode == "none"):
        return ""
    listed = words.between_tools.join(words.tool(definition) for definition in _definitions(tools, format))
    prompt = words.prompt.format(tools=listed)
    must = _MUST.get(choice.mode) if choice is not None else None
    return prompt if must is None or choice is None else f"{prompt}\n\n{must.format(name=choice.name)}"


def calls_as_text(calls: Iterable[ToolCall], format: str) -> str:
    """Calls as a model of this format writes them.

    >>> print(calls_as_text([ToolCall("hist_tool_1", "ls", '{"dir": "/tmp"}')], "hermes"))
    <tool_call>
    {"name": "ls", "arguments": {"dir": "/tmp"}}
    </tool_call>
    """
    words = _text_format(format)
    return words.between_calls.join(words.call(call) for call in calls)


def results_as_text(results: Iterable[ToolResult], format: str) -> str:
    """Results as a model of this format reads them, in the order of their calls.

    >>> print(results_as_text([ToolResult("hist_tool_1", "ls", (Text("a.py"),))], "llama"))
    {"output": "a.py"}
    """
    words = _text_format(format)
    return "\n".join(words.result(_result_text(result)) for result in results)


def as_text(
    messages: Iterable[Message], tools: Sequence[Tool], format: str, *, choice: ToolChoice | None = None
) -> tuple[Message, ...]:
    """Convert a conversation to text: calls and results become text, tools are described in the system prompt.

    Results become user messages, since hosts accept no tool message without a call. The output for a message depends
    only on that message, and on whether it follows another result.

    >>> converted = as_text([Message("user", (Text("hi"),))], [Tool("ls")], "llama")
    >>> [message.role for message in converted]
    ['system', 'user']
    """
    out: list[Message] = []
    open_results = False
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if message.role == "assistant":
            out.append(_render_assistant(message, format))
        elif results:
            rendered = _render_results(message, results, format)
            if open_results and message.role == "tool":
                rendered = _merge_results(out.pop(), rendered)
            out.append(rendered)
        else:
            out.append(message)
        open_results = message.role == "tool" and bool(results)
    return _add_prompt(out, describe_tools(tools, format, choice=choice))


def _add_prompt(messages: list[Message], prompt: str) -> tuple[Message, ...]:
    """Append the prompt to the first system message, as the templates do."""
    if not prompt:
        return tuple(messages)
    first = messages[0] if messages else None
    if first is None or first.role != "system":
        return (Message("system", (Text(prompt),)), *messages)
    *before, last = first.parts or (Text(""),)
    if isinstance(last, Text) and last.text.strip():
        parts: tuple[Part, ...] = (*before, Text(f"{last.text.rstrip()}\n\n{prompt}"))
    else:
        parts = (*before, Text(prompt)) if isinstance(last, Text) else (*first.parts, Text(prompt))
    return (replace(first, parts=parts, extras={}), *messages[1:])


def _render_assistant(message: Message, format: str) -> Message:
    """The assistant's text, followed by its calls."""
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    if not calls:
        return message
    reasoning = [part for part in message.parts if isinstance(part, Reasoning)]
    text = "".join(part.text for part in message.parts if isinstance(part, Text)).rstrip()
    written = calls_as_text(calls, format)
    return Message(
        "assistant", (*reasoning, Text(text + _text_format(format).before_calls + written if text else written))
    )


def _render_results(message: Message, results: list[ToolResult], format: str) -> Message:
    media: list[Part] = [part for result in results for part in result.parts if isinstance(part, Media)]
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    return Message("user", (Text(results_as_text(results, format)), *media, *rest))


def _merge_results(before: Message, after: Message) -> Message:
    """Merge the results of one response into one message."""
    first, *media = before.parts
    second, *more = after.parts
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    return Message("user", (Text(f"{first.text}\n{second.text}"), *media, *more))


def _result_text(result: ToolResult) -> str:
    text = "".join(part.text for part in result.parts if isinstance(part, Text))
    if not text and any(isinstance(part, Media) for part in result.parts):
        text = "(see below)"
    return f"Error: {text or FAILED}" if result.is_error and not text.lower().startswith("error") else text


def _definitions(tools: Sequence[Tool], format: str) -> list[Any]:
    """Wrapped as in the templates, even where the format itself is only the inner object."""
    rendered = format_tools(tools, format)
    return [
        definition if "function" in definition else {"type": "function", "function": definition}
        for definition in rendered
    ]


# --- calls and results, by format -------------------------------------------------------------------------------


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _arguments(call: ToolCall) -> Any:
    """The arguments as a value; a string that is not JSON is kept, so that nothing is lost."""
    try:
        return json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return call.arguments


def _hermes_call(call: ToolCall) -> str:
    return f"<tool_call>\n{_json({'name': call.name, 'arguments': _arguments(call)})}\n</tool_call>"


def _xml_call(call: ToolCall) -> str:
    arguments = _arguments(call)
    values = arguments if isinstance(arguments, dict) else {"arguments": arguments}
    lines = ["<tool_call>", f"<function={call.name}>"]
    for key, value in values.items():
        lines += [f"<parameter={key}>", value if isinstance(value, str) else _json(value), "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


def _llama_call(call: ToolCall) -> str:
    return _json({"name": call.name, "parameters": _arguments(call)})


def _tagged_result(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


_FORMATS: Final[dict[ToolFormat, _TextFormat]] = {
    "hermes": _TextFormat(_HERMES, _json, _hermes_call, _tagged_result),
    "xml": _TextFormat(_XML, _json, _xml_call, _tagged_result),
    "llama": _TextFormat(
        _LLAMA,
        lambda tool: _json(tool, 4),
        _llama_call,
        lambda text: _json({"output": text}),
        between_tools="\n\n",
        between_calls="; ",
        before_calls="\n<|python_tag|>",  # a bare object is a call only at the start of a response
    ),
}
assert tuple(_FORMATS) == TEXT_FORMATS


def _text_format(format: str) -> _TextFormat:
    for known, words in _FORMATS.items():
        if format == known:
            return words
    raise InvalidInput(
        f"{format!r} is not a text-based format; expected one of: {', '.join(TEXT_FORMATS)}", field="format"
    )
