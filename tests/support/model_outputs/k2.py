"""A draft -> the text that a Kimi K2 model writes for it: K2's grammar, and a table of what models do differently."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from msgspec.structs import replace

from tests.support.model_outputs.cases import CONTENT, Deviation, Draft, Json, MeantCall, Spelled, random_call

__all__ = ["ARGUMENT", "CALL", "CALL_END", "K2_DEVIATIONS", "k2_text", "with_string"]

SECTION: Final = "<|tool_calls_section_begin|>"
SECTION_END: Final = "<|tool_calls_section_end|>"
CALL: Final = "<|tool_call_begin|>"
ARGUMENT: Final = "<|tool_call_argument_begin|>"
CALL_END: Final = "<|tool_call_end|>"

Header = Callable[[int, MeantCall], str]
Arguments = Callable[[Draft, Json], str]


def k2_text(
    draft: Draft,
    *,
    section: str = SECTION,
    section_end: str = SECTION_END,
    call: str = CALL,
    header: Header | None = None,
    argument: str = ARGUMENT,
    arguments: Arguments | None = None,
    call_end: str = CALL_END,
    between: str = "",
    think_end: str = "</think>",
) -> str:
    """The whole output. What is given replaces the regular spelling, in the calls that deviate."""
    written: list[str] = []
    for at, one in enumerate(draft.calls):
        regular = f"functions.{one.name}:{at}"
        if at in draft.deviant:
            id_ = header(at, one) if header else regular
            value = arguments(draft, one.arguments) if arguments else draft.json(one.arguments)
            written.append(f"{call}{id_}{argument}{value}{call_end}")
        else:
            written.append(f"{CALL}{regular}{ARGUMENT}{draft.json(one.arguments)}{CALL_END}")
    calls = f"{section}{between.join(written)}{section_end}" if written else ""
    return f"{draft.reasoning}{think_end}{draft.content}{calls}"


def _text(**parts: str) -> Deviation:
    """These parts are different; `between` and the markers of the section concern all calls."""
    return lambda draft: k2_text(draft, **parts)  # type: ignore[arg-type]  # only parts that are strings


def _header(header: Header) -> Deviation:
    return lambda draft: k2_text(draft, header=header)


def _arguments(arguments: Arguments) -> Deviation:
    return lambda draft: k2_text(draft, arguments=arguments)


def _random_header(make: Callable[[Random], str]) -> Deviation:
    return lambda draft: k2_text(draft, header=lambda at, call: make(draft.random))


def _hexadecimal(prefix: str, length: int) -> Callable[[Random], str]:
    return lambda random: prefix + "".join(random.choices("0123456789abcdef", k=length))


# --- clean outputs ----------------------------------------------------------------------------------------------


def _only_text(draft: Draft) -> Spelled:
    draft = replace(draft.only_calls(()), content="The weather in Paris is fine: 21 °C, {no rain}.")
    return Spelled(output=k2_text(draft), draft=draft)


def _no_reasoning(draft: Draft) -> Spelled:
    draft = replace(draft, reasoning="")
    return Spelled(output=k2_text(draft), draft=draft)


def _eight_calls(draft: Draft) -> Spelled:
    draft = draft.only_calls([random_call(draft.random, draft.random.choice(draft.tools)) for _ in range(8)])
    return Spelled(output=k2_text(draft), draft=draft)


def _no_arguments(draft: Draft) -> Spelled:
    """`{}` for a tool that requires nothing."""
    tool = replace(draft.tools[0], types={})
    draft = replace(draft, tools=(tool, *draft.tools[1:])).only_calls([MeantCall(tool.name, {})])
    return Spelled(output=k2_text(draft), draft=draft)


# --- sections ---------------------------------------------------------------------------------------------------


def _two_sections(draft: Draft) -> Spelled:
    draft = _at_least_two(draft)
    return Spelled(output=k2_text(draft, between=f"{SECTION_END}{SECTION}"), draft=draft)


def _text_between_calls(draft: Draft) -> Spelled:
    draft = _at_least_two(draft)
    return Spelled(output=k2_text(draft, between="\nand then\n"), draft=draft)


def _at_least_two(draft: Draft) -> Draft:
    if len(draft.calls) > 1:
        return draft
    return draft.only_calls([*draft.calls, random_call(draft.random, draft.random.choice(draft.tools))])


# --- ids --------------------------------------------------------------------------------------------------------


def _wrapped(prefix: str) -> Deviation:
    """A foreign id, and the name in the arguments."""

    def deviate(draft: Draft) -> str:
        names = iter([call.name for at, call in enumerate(draft.calls) if at in draft.deviant])
        made = _hexadecimal(prefix, 16)
        return k2_text(
            draft,
            header=lambda at, call: made(draft.random),
            arguments=lambda draft, value: draft.json({"name": next(names), "arguments": value}),
        )

    return deviate


def _number(draft: Draft) -> str:
    first = draft.random.choice((0, 3, 12))
    return k2_text(draft, header=lambda at, call: str(first + at))


def _respelled(name: str) -> str:
    """The name with the other separators, or in another case if it has none."""
    other = name.translate(str.maketrans("-_", "_-"))
    return other if other != name else name.upper()


def _undeclared(draft: Draft) -> Spelled:
    calls = [replace(call, name="browser_open") if at in draft.deviant else call for at, call in enumerate(draft.calls)]
    draft = replace(draft, calls=tuple(calls))
    return Spelled(output=k2_text(draft), draft=draft)


# --- arguments --------------------------------------------------------------------------------------------------


def _two_objects(draft: Draft) -> Spelled:
    """Two different objects in one call: no reader knows which was meant."""
    return Spelled(
        output=k2_text(draft, arguments=lambda draft, value: draft.json(value) + draft.json({"other": 1})),
        draft=draft,
        readable=False,
    )


def _pairs(draft: Draft, value: Json) -> str:
    return draft.json(value)[1:-1]


def _fenced(draft: Draft, value: Json) -> str:
    return f"```json\n{draft.json(value)}\n```"


def _double_encoded(draft: Draft, value: Json) -> str:
    """Objects and lists inside of the arguments as strings that contain JSON."""
    return draft.json({key: json.dumps(one) if isinstance(one, dict | list) else one for key, one in value.items()})


def _with_containers(deviation: Deviation) -> Deviation:
    """Of a draft whose first call has an object and a list."""

    def deviate(draft: Draft) -> Spelled:
        tool = replace(draft.tools[0], types={**draft.tools[0].types, "todos": "array", "options": "object"})
        others = [replace(one, types=_without(one.types, ("todos", "options"))) for one in draft.tools[1:]]
        tools = (tool, *(one for one in others if one.types))
        added = {"todos": [{"title": 'say "hi"', "done": False}], "options": {"depth": 2}}
        call = random_call(draft.random, tool)
        draft = replace(draft, tools=tools).only_calls([replace(call, arguments=call.arguments | added)])
        output = deviation(draft)
        assert isinstance(output, str)
        return Spelled(output=output, draft=draft)

    return deviate


def _without(types: dict[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {key: name for key, name in types.items() if key not in keys}


def _raw_controls(draft: Draft) -> Spelled:
    """Line breaks and tabs inside of strings as they are."""
    draft = with_string(draft, "line one\n\tline two")
    return Spelled(output=k2_text(draft, arguments=lambda draft, value: _unescaped(draft.json(value))), draft=draft)


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _marker_in_string(draft: Draft) -> Spelled:
    draft = with_string(draft, f"the marker {draft.random.choice((CALL_END, SECTION_END, CALL, ARGUMENT))} ends it")
    return Spelled(output=k2_text(draft), draft=draft)


def with_string(draft: Draft, text: str) -> Draft:
    """All arguments of the calls that deviate are this one string."""
    tools = tuple(
        replace(tool, types={key: "string" if at == 0 else name for at, (key, name) in enumerate(tool.types.items())})
        for tool in draft.tools
    )
    keys = {tool.name: next(iter(tool.types)) for tool in tools}
    calls = tuple(MeantCall(call.name, {keys[call.name]: text}) for call in draft.calls)
    return replace(draft, tools=tools, calls=calls, deviant=frozenset(range(len(calls))))


# --- reasoning --------------------------------------------------------------------------------------------------


def _inside_reasoning(draft: Draft) -> Spelled:
    draft = replace(draft, content="")
    return Spelled(output=k2_text(draft, think_end="", section=f"\n{SECTION}"), draft=draft)


def _reasoning_after_calls(draft: Draft) -> Spelled:
    draft = replace(draft, content="")
    return Spelled(output=k2_text(draft, think_end="") + "</think>Done.", draft=draft)


def _never_closed(draft: Draft) -> Spelled:
    draft = replace(draft, content=draft.random.choice([text for text in CONTENT if text]))
    return Spelled(output=k2_text(draft, think_end="\n"), draft=draft)


# --- cut off ----------------------------------------------------------------------------------------------------


def _cut(draft: Draft, after: str, offset: Callable[[Draft, str], int], *, readable: bool = False) -> Spelled:
    """The output ends some characters behind the last `after`."""
    output = k2_text(draft)
    at = output.rindex(after) + len(after)
    return Spelled(output=output[: at + offset(draft, output[at:])], draft=draft, readable=readable)


def _cut_in_arguments(draft: Draft) -> Spelled:
    return _cut(draft, ARGUMENT, lambda draft, rest: draft.random.randrange(1, rest.index(CALL_END)))


def _cut_in_header(draft: Draft) -> Spelled:
    return _cut(draft, CALL, lambda draft, rest: draft.random.randrange(0, rest.index(ARGUMENT)))


def _cut_in_marker(draft: Draft) -> Spelled:
    """Behind complete arguments, so nothing is missing."""
    draft = with_string(draft, "a b")
    return _cut(draft, '"a b"}', lambda draft, rest: draft.random.randrange(1, len(CALL_END)), readable=True)


K2_DEVIATIONS: Final[dict[str, Deviation]] = {
    "clean": lambda draft: k2_text(draft),
    "clean: only text": _only_text,
    "clean: no reasoning": _no_reasoning,
    "clean: eight calls": _eight_calls,
    "clean: no arguments": _no_arguments,
    "clean: pretty arguments": _arguments(lambda draft, value: json.dumps(value, indent=2)),
    "clean: white space around markers": _text(section=f"\n{SECTION}\n", call_end=f"{CALL_END}\n"),
    "section: no begin": _text(section=""),
    "section: no end": _text(section_end=""),
    "section: none": _text(section="", section_end=""),
    "section: singular": _text(section="<|tool_call_section_begin|>", section_end="<|tool_call_section_end|>"),
    "section: begins twice": _text(section=f"{SECTION}{SECTION}"),
    "section: misspelled": _text(section="<|tool_calls_begin|>", section_end="<|tool_calls_end|>"),
    "section: two": _two_sections,
    "section: text after it": lambda draft: k2_text(draft) + " Done.",
    "section: text before the first call": _text(section=f"{SECTION}I call it now.\n"),
    "section: text between calls": _text_between_calls,
    "section: reasoning ends in it": _text(section=f"{SECTION}</think>"),
    "id: no prefix": _header(lambda at, call: f"{call.name}:{at}"),
    "id: no index": _header(lambda at, call: f"functions.{call.name}"),
    "id: bare name": _header(lambda at, call: call.name),
    "id: index after a dot": _header(lambda at, call: f"functions.{call.name}.{at}"),
    "id: index after an underscore": _header(lambda at, call: f"functions_{call.name}_{at}"),
    "id: glued": _header(lambda at, call: f"functions{call.name}{at}"),
    "id: number": _number,
    "id: call_…": _random_header(_hexadecimal("call_", 24)),
    "id: call and digits": _random_header(lambda random: f"call{random.randrange(10):05}"),
    "id: toolu_…": _random_header(_hexadecimal("toolu_01", 20)),
    "id: call_…, wrapped": _wrapped("call_"),
    "id: empty name": _header(lambda at, call: f":{at}"),
    "id: empty": _header(lambda at, call: ""),
    "id: spaces": _header(lambda at, call: f" functions.{call.name} : {at} "),
    "id: line break": _header(lambda at, call: f"functions.{call.name}:{at}\n"),
    "id: line break inside": _header(lambda at, call: f"functions.{call.name}\n:{at}"),
    "id: full-width colon": _header(lambda at, call: f"functions.{call.name}\uff1a{at}"),
    "id: same index": _header(lambda at, call: f"functions.{call.name}:0"),
    "id: high index": _header(lambda at, call: f"functions.{call.name}:{at + 117}"),
    "id: other case": _header(lambda at, call: f"functions.{call.name.swapcase()}:{at}"),
    "id: other separators": _header(lambda at, call: f"functions.{_respelled(call.name)}:{at}"),
    "id: undeclared tool": _undeclared,
    "markers: no call begin": _text(call=""),
    "markers: call begins twice": _text(call=f"{CALL}{CALL}"),
    "markers: space for the argument marker": _text(argument=" "),
    "markers: line break for the argument marker": _text(argument="\n"),
    "markers: no argument marker": _text(argument=""),
    "markers: tool_call_arguments_begin": _text(argument="<|tool_call_arguments_begin|>"),
    "markers: argument marker twice": _text(argument=f"{ARGUMENT}{ARGUMENT}"),
    "markers: no call end": _text(call_end=""),
    "markers: no end at all": _text(call_end="", section_end=""),
    "markers: call ends twice": _text(call_end=f"{CALL_END}{CALL_END}"),
    "markers: spaced": _text(call="<| tool_call_begin |>", argument="<| tool_call_argument_begin |>"),
    "arguments: white space first": _arguments(lambda draft, value: f" \n{draft.json(value)}"),
    "arguments: list": _arguments(lambda draft, value: draft.json([value])),
    "arguments: JSON string": _arguments(lambda draft, value: draft.json(draft.json(value))),
    "arguments: bare pairs": _arguments(_pairs),
    "arguments: twice": _arguments(lambda draft, value: json.dumps(value) * 2),
    "arguments: two objects": _two_objects,
    "arguments: junk after": _arguments(lambda draft, value: draft.json(value) + "}}"),
    "arguments: text after": _arguments(lambda draft, value: draft.json(value) + " I call it now."),
    "arguments: text before": _arguments(lambda draft, value: f"Arguments: {draft.json(value)}"),
    "arguments: Python": _arguments(lambda draft, value: repr(value)),
    "arguments: trailing comma": _arguments(lambda draft, value: f"{draft.json(value)[:-1]},}}"),
    "arguments: no last brace": _arguments(lambda draft, value: draft.json(value)[:-1]),
    "arguments: fence": _arguments(_fenced),
    "arguments: containers as strings": _with_containers(_arguments(_double_encoded)),
    "arguments: raw line breaks": _raw_controls,
    "arguments: a marker in a string": _marker_in_string,
    "reasoning: calls inside": _inside_reasoning,
    "reasoning: ends after the calls": _reasoning_after_calls,
    "reasoning: never closed": _never_closed,
    "reasoning: closed twice": _text(think_end="</think></think>"),
    "reasoning: opened again": lambda draft: f"<think>{k2_text(draft)}",
    "cut: in the arguments": _cut_in_arguments,
    "cut: in the id": _cut_in_header,
    "cut: before the arguments": lambda draft: _cut(draft, ARGUMENT, lambda draft, rest: 0),
    "cut: in the last marker": _cut_in_marker,
    "cut: after the section begin": lambda draft: _cut(draft, SECTION, lambda draft, rest: 0),
}
"""What is different -> the spelling. Names that start with `clean` are what a model should write."""
