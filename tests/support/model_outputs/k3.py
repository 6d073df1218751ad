"""A draft -> the text that a Kimi K3 model writes for it: K3's XTML, and a table of what models do differently."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from tests.support.model_outputs import k2
from tests.support.model_outputs.cases import Deviation, Draft, Json, MeantCall, Spelled, random_call

__all__ = ["K3_DEVIATIONS", "k3_text"]

SEP: Final = "<|sep|>"


def opening(tag: str, attributes: str = "") -> str:
    return f"<|open|>{tag}{attributes}{SEP}"


def closing(tag: str) -> str:
    return f"<|close|>{tag}{SEP}"


END: Final = closing("message")
TOOLS, TOOLS_END = opening("tools"), closing("tools")
THINK_END: Final = closing("think")
RESPONSE, RESPONSE_END = opening("response"), closing("response")

CallAttributes = Callable[[int, MeantCall], str]
ArgumentAttributes = Callable[[str, str], str]
Body = Callable[[Draft, Json], str]


def k3_text(
    draft: Draft,
    *,
    think_end: str = THINK_END,
    response: str = RESPONSE,
    response_end: str = RESPONSE_END,
    tools: str = TOOLS,
    call: CallAttributes | None = None,
    body: Body | None = None,
    call_end: str = closing("call"),
    between: str = "",
    tools_end: str = TOOLS_END,
    end: str = END,
) -> str:
    """The whole output. What is given replaces the regular spelling; `call`, `body`, `call_end` where calls deviate."""
    written: list[str] = []
    for at, one in enumerate(draft.calls):
        attributes, ending = f' tool="{_escaped(one.name)}" index="{at + 1}"', closing("call")
        content: Body = arguments
        if at in draft.deviant:
            attributes = call(at, one) if call else attributes
            ending, content = call_end, body or arguments
        written.append(f"{opening('call', attributes)}{content(draft, one.arguments)}{ending}")
    calls = f"{tools}{between.join(written)}{tools_end}" if written else ""
    return f"{draft.reasoning}{think_end}{response}{draft.content}{response_end}{calls}{end}"


def arguments(
    draft: Draft,
    values: Json,
    *,
    tag: str = "argument",
    attributes: ArgumentAttributes | None = None,
    value: Callable[[object], str] | None = None,
    end: str = closing("argument"),
) -> str:
    """The arguments as elements: strings as they are, everything else as JSON."""
    written: list[str] = []
    for key, one in values.items():
        kind = _kind(one)
        given = attributes(_escaped(key), kind) if attributes else f' key="{_escaped(key)}" type="{kind}"'
        text = value(one) if value else one if isinstance(one, str) else draft.json(one)
        written.append(f"{opening(tag, given)}{text}{end}")
    return "".join(written)


def _kind(value: object) -> str:
    match value:
        case str():
            return "string"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "null"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _text(**parts: str) -> Deviation:
    return lambda draft: k3_text(draft, **parts)  # type: ignore[arg-type]  # only parts that are strings


def _call(attributes: CallAttributes) -> Deviation:
    return lambda draft: k3_text(draft, call=attributes)


def _body(body: Body) -> Deviation:
    return lambda draft: k3_text(draft, body=body)


def _attributes(attributes: ArgumentAttributes) -> Deviation:
    return _body(lambda draft, values: arguments(draft, values, attributes=attributes))


def _replaced(*pairs: tuple[str, str]) -> Deviation:
    """Everywhere in the output. No text of a draft contains a marker of K3."""

    def deviate(draft: Draft) -> str:
        text = k3_text(draft)
        for old, new in pairs:
            text = text.replace(old, new)
        return text

    return deviate


# --- clean outputs ----------------------------------------------------------------------------------------------


def _only_text(draft: Draft) -> Spelled:
    draft = replace(draft.only_calls(()), content="The weather in Paris is fine: 21 °C, {no rain}.")
    return Spelled(output=k3_text(draft), draft=draft)


def _no_reasoning(draft: Draft) -> Spelled:
    draft = replace(draft, reasoning="")
    return Spelled(output=k3_text(draft), draft=draft)


def _eight_calls(draft: Draft) -> Spelled:
    draft = draft.only_calls([random_call(draft.random, draft.random.choice(draft.tools)) for _ in range(8)])
    return Spelled(output=k3_text(draft), draft=draft)


def _no_arguments(draft: Draft) -> Spelled:
    """No argument elements, for a tool that requires nothing."""
    tool = replace(draft.tools[0], types={})
    draft = replace(draft, tools=(tool, *draft.tools[1:])).only_calls([MeantCall(tool.name, {})])
    return Spelled(output=k3_text(draft), draft=draft)


def _json(attributes: str) -> Body:
    return lambda draft, values: f"{opening('json', attributes)}{draft.json(values)}{closing('json')}"


def _json_in_a_string(draft: Draft, values: Json) -> str:
    attributes = ' type="object"'
    return f"{opening('json', attributes)}{json.dumps(draft.json(values))}{closing('json')}"


# --- structure --------------------------------------------------------------------------------------------------


def _inside_reasoning(draft: Draft) -> Spelled:
    draft = replace(draft, content="")
    return Spelled(output=k3_text(draft, think_end="", response="", response_end=""), draft=draft)


def _reasoning_after_calls(draft: Draft) -> Spelled:
    draft = replace(draft, content="")
    output = k3_text(draft, think_end="", response="", response_end="", end="")
    return Spelled(output=f"{output}{THINK_END}{RESPONSE}{RESPONSE_END}{END}", draft=draft)


def _no_response(draft: Draft) -> Spelled:
    draft = replace(draft, content="")
    return Spelled(output=k3_text(draft, response="", response_end=""), draft=draft)


def _inside_response(draft: Draft) -> str:
    return k3_text(draft, response_end="", tools_end=f"{TOOLS_END}{RESPONSE_END}")


def _several(between: str) -> Deviation:
    def deviate(draft: Draft) -> Spelled:
        if len(draft.calls) == 1:
            draft = draft.only_calls([*draft.calls, random_call(draft.random, draft.random.choice(draft.tools))])
        return Spelled(output=k3_text(draft, between=between), draft=draft)

    return deviate


def _k2_calls(draft: Draft) -> str:
    """K2's markers inside of K3's wrapper."""
    calls = "".join(
        f"{k2.CALL}functions.{call.name}:{at}{k2.ARGUMENT}{draft.json(call.arguments)}{k2.CALL_END}"
        for at, call in enumerate(draft.calls)
    )
    return f"{k3_text(draft.only_calls(()), end='')}{TOOLS}{calls}{TOOLS_END}{END}"


def _k2_section(draft: Draft) -> str:
    """A whole section of K2 behind the response."""
    section = k2.k2_text(replace(draft, reasoning="", content="", deviant=frozenset()), think_end="")
    return f"{k3_text(draft.only_calls(()), end='')}{section}{END}"


def _only_k2(draft: Draft) -> str:
    return k2.k2_text(replace(draft, deviant=frozenset()))


# --- calls and arguments ----------------------------------------------------------------------------------------


def _no_tool(draft: Draft) -> Spelled:
    """The arguments fit only one tool."""
    return Spelled(output=k3_text(draft, call=lambda at, call: f' index="{at + 1}"'), draft=draft)


def _undeclared(draft: Draft) -> Spelled:
    calls = [replace(call, name="browser_open") if at in draft.deviant else call for at, call in enumerate(draft.calls)]
    draft = replace(draft, calls=tuple(calls))
    return Spelled(output=k3_text(draft), draft=draft)


def _no_key(draft: Draft) -> Spelled:
    output = k3_text(
        draft, body=lambda draft, values: arguments(draft, values, attributes=lambda key, kind: f' type="{kind}"')
    )
    return Spelled(output=output, draft=draft, readable=False)


def _python(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _key_twice(draft: Draft, values: Json) -> str:
    first = next(iter(values))
    return arguments(draft, {first: values[first]}) + arguments(draft, values)


def _numbers_as_words(key: str, kind: str) -> str:
    words = {"number": "integer", "object": "dict", "array": "list", "boolean": "bool", "string": "str"}
    return f' key="{key}" type="{words.get(kind, kind)}"'


def _marker_in_string(draft: Draft) -> Spelled:
    draft = k2.with_string(draft, draft.random.choice(("a <|sep|> b", "<|open|> and <|close|>", "see <|open|>call")))
    return Spelled(output=k3_text(draft), draft=draft)


def _closed_argument_in_string(draft: Draft) -> Spelled:
    draft = k2.with_string(draft, "an end: <|close|>arg<|sep|> it was")
    return Spelled(output=k3_text(draft), draft=draft)


# --- cut off ----------------------------------------------------------------------------------------------------


def _cut(draft: Draft, pattern: str, *, readable: bool = False) -> Spelled:
    """The output ends at a random place inside of the last match of the pattern's group."""
    output = k3_text(draft)
    last = list(re.finditer(pattern, output, re.DOTALL))[-1]
    return Spelled(output=output[: draft.random.randint(last.start(1), last.end(1))], draft=draft, readable=readable)


def _cut_in_value(draft: Draft) -> Spelled:
    return _cut(k2.with_string(draft, "quite a long string"), r"<\|sep\|>(quite a lon)g")


K3_DEVIATIONS: Final[dict[str, Deviation]] = {
    "clean": lambda draft: k3_text(draft),
    "clean: only text": _only_text,
    "clean: no reasoning": _no_reasoning,
    "clean: eight calls": _eight_calls,
    "clean: no arguments": _no_arguments,
    "clean: json element": _body(_json(' type="object"')),
    "structure: calls inside reasoning": _inside_reasoning,
    "structure: reasoning ends after the calls": _reasoning_after_calls,
    "structure: reasoning never closed": _text(think_end=""),
    "structure: </think>": _text(think_end="</think>"),
    "structure: no response": _no_response,
    "structure: response never closed": _text(response_end=""),
    "structure: calls inside the response": _inside_response,
    "structure: no tools wrapper": _text(tools="", tools_end=""),
    "structure: tools never closed": _text(tools_end=""),
    "structure: tools never opened": _text(tools=""),
    "structure: two tools wrappers": _several(f"{TOOLS_END}{TOOLS}"),
    "structure: message never closed": _text(end=""),
    "structure: message closed before the tools": _text(response_end=f"{RESPONSE_END}{END}"),
    "structure: message closed twice": _text(end=f"{END}{END}"),
    "structure: text between calls": _several("\nand then\n"),
    "structure: text before the first call": _text(tools=f"{TOOLS}I call it now.\n"),
    "structure: text after the tools": _text(tools_end=f"{TOOLS_END} Done."),
    "structure: line breaks": _text(tools=f"\n{TOOLS}\n", call_end=f"{closing('call')}\n"),
    "separators: none after think": _text(think_end="<|close|>think"),
    "separators: none after closing": lambda draft: re.sub(r"(<\|close\|>\w+)<\|sep\|>", r"\1", k3_text(draft)),
    "separators: none after opening tools": _text(tools="<|open|>tools"),
    "separators: spaced": _replaced(("<|close|>", "<|close|> "), ("<|open|>", "<|open|> "), (SEP, f" {SEP}")),
    "separators: tools spaced": _text(tools="<|open|> tools <|sep|>"),
    "call: not closed": _text(call_end=""),
    "call: closed twice": _text(call_end=closing("call") * 2),
    "call: closed as tool": _text(call_end=closing("tool")),
    "call: name attribute": _call(lambda at, call: f' name="{call.name}" index="{at + 1}"'),
    "call: no tool": _no_tool,
    "call: no index": _call(lambda at, call: f' tool="{call.name}"'),
    "call: same index": _call(lambda at, call: f' tool="{call.name}" index="1"'),
    "call: index from 0": _call(lambda at, call: f' tool="{call.name}" index="{at}"'),
    "call: index first": _call(lambda at, call: f' index="{at + 1}" tool="{call.name}"'),
    "call: further attribute": _call(lambda at, call: f' tool="{call.name}" index="{at + 1}" id="call_{at}"'),
    "call: no space": _call(lambda at, call: f'tool="{call.name}"index="{at + 1}"'),
    "call: single quotes": _call(lambda at, call: f" tool='{call.name}' index='{at + 1}'"),
    "call: no quotes": _call(lambda at, call: f" tool={call.name} index={at + 1}"),
    "call: spaces at the equals sign": _call(lambda at, call: f' tool = "{call.name}" index = "{at + 1}"'),
    "call: K2 id as tool": _call(lambda at, call: f' tool="functions.{call.name}:{at}" index="{at + 1}"'),
    "call: other case": _call(lambda at, call: f' tool="{call.name.swapcase()}" index="{at + 1}"'),
    "call: undeclared tool": _undeclared,
    "arguments: not closed": _body(lambda draft, values: arguments(draft, values, end="")),
    "arguments: closed as arg": _body(lambda draft, values: arguments(draft, values, end=closing("arg"))),
    "arguments: closed without separator": _body(
        lambda draft, values: arguments(draft, values, end="<|close|>argument")
    ),
    "arguments: not opened": _body(lambda draft, values: arguments(draft, values).replace("<|open|>", "")),
    "arguments: tag parameter": _body(
        lambda draft, values: arguments(draft, values, tag="parameter", end=closing("parameter"))
    ),
    "arguments: no key": _no_key,
    "arguments: no type": _attributes(lambda key, kind: f' key="{key}"'),
    "arguments: other type names": _attributes(_numbers_as_words),
    "arguments: type first": _attributes(lambda key, kind: f' type="{kind}" key="{key}"'),
    "arguments: name for key": _attributes(lambda key, kind: f' name="{key}" type="{kind}"'),
    "arguments: no space": _attributes(lambda key, kind: f'key="{key}"type="{kind}"'),
    "arguments: single quotes": _attributes(lambda key, kind: f" key='{key}' type='{kind}'"),
    "arguments: one twice": _body(_key_twice),
    "arguments: Python": _body(lambda draft, values: arguments(draft, values, value=_python)),
    "arguments: untagged JSON": _body(lambda draft, values: draft.json(values)),
    "arguments: json element without type": _body(_json("")),
    "arguments: json element with a string": _body(_json_in_a_string),
    "arguments: text before": _body(lambda draft, values: f"Arguments:\n{arguments(draft, values)}"),
    "arguments: a marker in a string": _marker_in_string,
    "arguments: an end in a string": _closed_argument_in_string,
    "K2: calls in the wrapper": _k2_calls,
    "K2: a section after the response": _k2_section,
    "K2: the whole output": _only_k2,
    "cut: in a value": _cut_in_value,
    "cut: after an argument": lambda draft: _cut(draft, r"<\|close\|>argument(<\|sep\|>)<\|close\|>call"),
    "cut: in the attributes": lambda draft: _cut(draft, r'<\|open\|>call( tool="[^"]+" inde)'),
    "cut: after the call": lambda draft: _cut(draft, r"<\|close\|>call<\|sep\|>(<\|close\|>to)", readable=True),
    "cut: after opening tools": lambda draft: _cut(draft, r"<\|open\|>tools<\|sep\|>(<\|open\|>)call tool="),
}
"""What is different -> the spelling. Names that start with `clean` are what a model should write."""
