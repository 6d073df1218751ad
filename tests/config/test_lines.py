"""Where things stand: the line of every key and element, in TOML and in JSON, and never a wrong one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.config.example import EXAMPLE
from moonshim.config.files.json_file import read_json
from moonshim.config.files.toml_lines import toml_lines
from moonshim.config.problems import Path, display_path

MARKED = '''
top = 1                                     # top
dotted.key = 1                              # dotted dotted.key
"quoted key" = 'a # b'                      # "quoted key"
when = 2026-01-31 12:00:00Z                 # when

[table]                                     # table
text = """
[not.a.table]
key = "no"
"""                                         # -
raw = \'\'\'
x = 1
\'\'\'
list = [                                    # table.list
  "a",                                      # table.list[0]
  #between
  { name = "b", deep = { er = 2 } },        # table.list[1] table.list[1].name table.list[1].deep table.list[1].deep.er
  [1,                                       # table.list[2] table.list[2][0]
   2],                                      # table.list[2][1]
]

[[many]]                                    # many many[0]
name = "a"                                  # many[0].name
[many.inner]                                # many[0].inner
x = "\\"]"                                   # many[0].inner.x
[[many.more]]                               # many[0].more many[0].more[0]
y = 1                                       # many[0].more[0].y

[[many]]                                    # many[1]
name = \'\'\'b\'\'\'                              # many[1].name
[[many.more]]                               # many[1].more many[1].more[0]
[[many.more]]                               # many[1].more[1]
'''


def test_every_key_of_a_difficult_text_is_found_on_its_line() -> None:
    tomllib.loads(MARKED)
    found = {display_path(path): line for path, line in toml_lines(MARKED).items()}
    for number, line in enumerate(MARKED.splitlines(), 1):
        places = line.partition("  # ")[2].replace('"quoted key"', "\0").split()
        for place in places:
            name = place.replace("\0", '"quoted key"')
            if name != "-":
                assert found.get(name) == number, name


def paths_of(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    match value:
        case dict():
            for key, inner in value.items():
                yield from paths_of(inner, (*path, key))
        case list():
            for place, inner in enumerate(value):
                yield from paths_of(inner, (*path, place))


@pytest.mark.parametrize("text", [MARKED, EXAMPLE])
def test_nothing_is_found_that_is_not_there_and_nothing_is_missed(text: str) -> None:
    assert set(toml_lines(text)) == set(paths_of(tomllib.loads(text)))


keys = st.text("ab.\"'\\é #=[]", min_size=1, max_size=4)
scalars = st.one_of(st.integers(-5, 5), st.booleans(), st.text("ab\"'\\#[]{}=,\n é", max_size=6), st.just(1.5))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


def written(value: Any, newline: str) -> str:
    """A value in TOML, lists over several lines."""
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {written(one, newline)}" for key, one in value.items()) + "}"
        case list():
            return "[" + newline + f",{newline}".join(written(one, newline) for one in value) + newline + "]"
    return json.dumps(value, ensure_ascii=False)


@given(st.dictionaries(keys, values, max_size=4), st.lists(st.dictionaries(keys, values, max_size=3), max_size=3))
def test_the_paths_of_any_toml_are_those_that_it_says(root: dict[str, Any], tables: list[dict[str, Any]]) -> None:
    lines = [f"{json.dumps(key)} = {written(value, chr(10))}" for key, value in root.items() if key != "ab"]
    for table in tables:
        lines += ["[[ab]]  # ]]", *(f"{json.dumps(key)} = {written(value, ' ')}" for key, value in table.items())]
    text = "\n".join(lines)
    assert set(toml_lines(text)) == set(paths_of(tomllib.loads(text)))


@given(values)
def test_json_is_read_as_by_everybody_else_and_every_path_has_a_line(value: Any) -> None:
    text = json.dumps(value, indent=1)
    read, lines = read_json(text)
    assert read == value
    assert set(lines) == set(paths_of(value))
    for path, line in lines.items():
        if isinstance(path[-1], str):
            assert json.dumps(path[-1]) in text.splitlines()[line - 1]


def test_comments_and_commas_too_many_are_passed_over() -> None:
    text = '// a\n{ /* b\n*/ "x": [1, // c\n 2,], "y": "// no /* comment",\n}\n'
    assert read_json(text) == (
        {"x": [1, 2], "y": "// no /* comment"},
        {("x",): 3, ("x", 0): 3, ("x", 1): 4, ("y",): 4},
    )


@given(st.text("[]{}=.\"'#,ab\n \\", max_size=40))
def test_no_text_is_too_odd_for_the_search(text: str) -> None:
    toml_lines(text)
