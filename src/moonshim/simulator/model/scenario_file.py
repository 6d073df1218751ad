"""The name of a built-in scenario, or a file -> a `Scenario`, or a `ScenarioError` that lists every mistake."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time
from json import JSONDecodeError, dumps, loads
from pathlib import Path as File
from typing import Any, Final, get_args

from moonshim.config.files.source_file import read_text, read_values
from moonshim.config.problems import ConfigError, Path, Problems, nearest
from moonshim.config.tables.table import Table, kind_of
from moonshim.simulator.model.scenario import (
    ANY,
    BUILT_IN,
    PLACES,
    Act,
    PlannedAnswer,
    PlannedCall,
    PlannedRound,
    Scenario,
    When,
)

__all__ = ["ScenarioError", "load_scenario", "parse_scenario"]

MOST_CALLS: Final = 128
MOST_ROUNDS: Final = 1000
LONGEST: Final = 1_000_000
_FOLDER: Final = File(__file__).parent / "scenarios"
_PLACE: Final = re.compile(r"\{([A-Za-z_]+)\}")
_ACT_KEYS: Final = ("round", "answer", "no_tools")
# Names that people may remember from other tools' files.
_HINTS: Final = {
    "turn": "; write one `[[act]]` per user message",
    "message": "; write one `[[act]]` per user message",
    "rounds": "; write each round as a separate `[[round]]`",
    "tool_calls": " (did you mean 'call'?)",
    "name": " (did you mean 'tool'?)",
    "args": " (did you mean 'arguments'?)",
    "content": " (did you mean 'say'?)",
    "reasoning": " (did you mean 'think'?)",
}


class ScenarioError(ConfigError):
    """A scenario is invalid; `problems` has one line per mistake."""

    code = "invalid_scenario"


def load_scenario(name_or_path: str | File) -> Scenario:
    """The built-in scenario of this name, or the one in a file.

    >>> load_scenario("one-call").about
    'Calls one tool, then answers with its result'
    >>> load_scenario("one-cal")
    Traceback (most recent call last):
    moonshim.simulator.model.scenario_file.ScenarioError: unknown scenario 'one-cal' (did you mean 'one-call'?)
    """
    source = str(name_or_path)
    path = _FOLDER / f"{source}.toml" if source in BUILT_IN else File(source)
    if source not in BUILT_IN and "/" not in source and not path.suffix and not path.exists():
        hint = nearest(source, BUILT_IN) or f"; choose from {', '.join(BUILT_IN)}, or give the path of a file"
        raise ScenarioError([f"unknown scenario '{source}'{hint}"])
    try:
        text = read_text(path, what="a scenario")
    except ConfigError as error:
        raise ScenarioError(error.problems) from None
    return parse_scenario(text, suffix=path.suffix, source=source, name=path.stem)


def parse_scenario(text: str, *, suffix: str = ".toml", source: str = "scenario.toml", name: str = "") -> Scenario:
    """Parse a scenario.

    >>> parse_scenario("[[round]]\\ncall = 'ls'\\n[[round]]\\nrepaet = 2\\n")
    Traceback (most recent call last):
    moonshim.simulator.model.scenario_file.ScenarioError: scenario.toml:4: round[1].repaet: unknown key 'repaet'
        (did you mean 'repeat'?)
    """
    try:
        value, lines = read_values(text, suffix=suffix, source=source)
    except ConfigError as error:
        raise ScenarioError(error.problems) from None
    problems = Problems(source, lines)
    scenario = _scenario(Table(value, (), problems, {}), name)
    if problems.errors:
        raise ScenarioError(problems.errors)
    return scenario


def _scenario(root: Table, name: str) -> Scenario:
    about = _text(root, "about") or ""
    tables = root.tables("act")
    if tables is None:
        acts = [_act(root)]
    else:
        for key in _ACT_KEYS:
            if key in root:
                root.knows(key)
                root.error(key, f"this belongs in an act: move it below `[[act]]` as `act.{key}`")
        acts = [_act(table) for table in tables]
        for table in tables:
            table.close(hints=_HINTS)
        if not tables:
            root.error("act", "expected at least one act")
    root.close(hints=_HINTS, more=("act",))
    return Scenario(name=name, about=about, acts=tuple(acts))


def _act(table: Table) -> Act:
    rounds = [_round(one) for one in table.tables("round") or ()]
    if table.raw("round") == []:
        table.error("round", "expected at least one round; leave `round` out to call nothing")
    if sum(one.repeat for one in rounds) > MOST_ROUNDS:
        table.error("round", f"expected at most {MOST_ROUNDS} rounds")
    return Act(
        rounds=tuple(rounds),
        answer=_answer(table, "answer", Act().answer),
        no_tools=_answer(table, "no_tools", Act().no_tools),
    )


def _answer(table: Table, key: str, default: PlannedAnswer) -> PlannedAnswer:
    inner = table.table(key)
    if inner is None:
        return default
    think, say = _text(inner, "think"), _text(inner, "say")
    inner.close(hints=_HINTS)
    if not (think or say) and not (set(inner) - {"think", "say"}):
        table.error(key, "empty answer: set `say`")
    return PlannedAnswer(think=think or "", say=say or "")


def _round(table: Table) -> PlannedRound:
    when: Any = table.choice("when", get_args(When)) or "always"
    plan = PlannedRound(
        think=_text(table, "think") or "",
        say=_text(table, "say") or "",
        calls=_calls(table),
        when=when,
        repeat=table.integer("repeat", most=MOST_ROUNDS) or 1,
    )
    table.close(hints=_HINTS)
    return plan


def _calls(table: Table) -> tuple[PlannedCall, ...]:
    """A name, or a list of names and tables."""
    table.knows("call")
    given = table.raw("call")
    if given is None:
        return (PlannedCall(),)
    if isinstance(given, str):
        return (PlannedCall(tools=_tools(given, table.at("call"), table.problems)),)
    if not isinstance(given, list):
        table.error("call", f"expected a tool name or a list of calls, got {kind_of(given)}")
        return ()
    calls = []
    for place, one in enumerate(given):
        path = (*table.at("call"), place)
        if isinstance(one, str):
            calls.append(PlannedCall(tools=_tools(one, path, table.problems)))
        else:
            calls.append(_call(Table(one, path, table.problems, {})))
    if not calls:
        table.error("call", "expected at least one call; leave `call` out to call any tool")
    if sum(call.count for call in calls) > MOST_CALLS:
        table.error("call", f"expected at most {MOST_CALLS} calls per round")
    return tuple(calls)


def _call(table: Table) -> PlannedCall:
    table.knows("tool", "arguments")
    tools = _tools(table.raw("tool"), table.at("tool"), table.problems) if "tool" in table else (ANY,)
    text, length = _text(table, "text", places=False), table.integer("length", most=LONGEST)
    optional = table.flag("optional")
    count = table.integer("count", most=MOST_CALLS) or 1
    table.close(hints=_HINTS)
    if "arguments" in table:
        for key in ("text", "length", "optional"):
            if key in table:
                table.error(key, "only for generated arguments, but `arguments` is set")
    if length and text is None:
        table.error("length", "requires `text`, which it repeats up to this length")
    if text and length:
        text = (text * (length // len(text) + 1))[:length]
    return PlannedCall(
        tools=tools, arguments=_arguments(table), text=text or None, optional=optional or False, count=count
    )


def _tools(given: Any, path: Path, problems: Problems) -> tuple[str, ...]:
    names = given if isinstance(given, list) else [given]
    for place, name in enumerate(names):
        where = (*path, place) if isinstance(given, list) else path
        if not isinstance(name, str):
            problems.add(where, f"expected a tool name or a list of names, got {kind_of(name)}")
        elif not name.strip():
            problems.add(where, f'the tool name is empty; use `"{ANY}"` for any tool')
    if not names:
        problems.add(path, f'expected at least one tool name; use `"{ANY}"` for any tool')
    return tuple(name for name in names if isinstance(name, str))


def _arguments(table: Table) -> str | None:
    """JSON text: as written, or generated from a table."""
    if "arguments" not in table:
        return None
    given = table.raw("arguments")
    if isinstance(given, str):
        try:
            value = loads(given)
        except (JSONDecodeError, RecursionError) as error:
            table.error("arguments", f"not valid JSON: {error}")
        else:
            if not isinstance(value, dict):
                table.error("arguments", "expected a string with a JSON object")
        return given
    if not isinstance(given, dict):
        table.error("arguments", f"expected a table or a string with a JSON object, got {kind_of(given)}")
        return None
    before = table.problems.count
    _check_json(given, table.at("arguments"), table.problems)
    return dumps(given, ensure_ascii=False) if table.problems.count == before else None


def _check_json(value: Any, path: Path, problems: Problems) -> None:
    """TOML has values that JSON lacks."""
    match value:
        case dict():
            for key, one in value.items():
                _check_json(one, (*path, key), problems)
        case list():
            for place, one in enumerate(value):
                _check_json(one, (*path, place), problems)
        case float() if not math.isfinite(value):
            problems.add(path, "JSON does not support this number")
        case date() | datetime() | time():
            problems.add(path, "JSON does not support dates and times: write a string")


def _text(table: Table, key: str, *, places: bool = True) -> str | None:
    """A string as written: no variables are expanded."""
    table.knows(key)
    value = table.raw(key)
    if value is None:
        return None
    if not isinstance(value, str):
        table.error(key, f"expected a string, got {kind_of(value)}")
        return None
    for found in _PLACE.finditer(value) if places else ():
        # Other words in braces are left alone: code contains them, and JSON.
        if found[1] not in PLACES and (hint := nearest(found[1], PLACES)):
            hint = hint.replace("'", "'{", 1).replace("'?", "}'?")
            table.error(key, f"unknown placeholder '{found[0]}'{hint}")
    return value
