"""glob and grep: what they find, what they leave out, and that no pattern can hold up the program."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.agent.toolbox import search, walking
from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.toolbox.search import Search
from moonshim.agent.tools import ToolFailed
from tests.agent.asking import run


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for name, text in {
        "a.py": "import os\nprint('hello')\n",
        "README.md": "# Hello\n\nhello again\n",
        "src/b.py": "class B:\n    pass\n",
        "src/deep/er/c.pyi": "hello: str\n",
        "src/deep/d.txt": "nothing\n",
        ".hidden/e.py": "hello\n",
        ".git/config": "hello\n",
        "sub/.git": "gitdir: hello\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "secret.py").write_text("hello\n")
    (root / "out.py").symlink_to(tmp_path / "secret.py")
    (root / "up").symlink_to(tmp_path)
    (root / "in.py").symlink_to("a.py")
    return root


@pytest.fixture
def found(work: Path) -> Search:
    return Search(WorkingFolder(work), 30_000)


def grep(coroutine: Coroutine[Any, Any, str]) -> list[str]:
    return run(coroutine).splitlines()


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*.py", ["a.py", "in.py", ".hidden/e.py", "src/b.py"]),
        ("*.{py,pyi}", ["a.py", "in.py", ".hidden/e.py", "src/b.py", "src/deep/er/c.pyi"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**", ["src/b.py", "src/deep/d.txt", "src/deep/er/c.pyi"]),
        ("src/**/*.pyi", ["src/deep/er/c.pyi"]),
        ("**/d.txt", ["src/deep/d.txt"]),
        ("./a.py", ["a.py"]),
        ("?.py", ["a.py", ".hidden/e.py", "src/b.py"]),
        ("[ab].py", ["a.py", "src/b.py"]),
        ("**/deep/**/c.*", ["src/deep/er/c.pyi"]),
    ],
)
def test_files_are_found_by_name(found: Search, pattern: str, files: list[str]) -> None:
    assert found.glob(pattern).splitlines() == files


def test_a_folder_to_look_in_can_be_named(found: Search) -> None:
    assert found.glob("*.txt", "src/deep") == "src/deep/d.txt"
    assert found.glob("deep/*", "src") == "src/deep/d.txt"
    assert found.glob("*.nothing") == "No files match *.nothing."


@pytest.mark.parametrize("path", ["..", "/etc", "up", "a.py", "nothing", "a\0", "x" * 5000])
def test_only_folders_inside_are_looked_into(found: Search, path: str) -> None:
    with pytest.raises(ToolFailed):
        found.glob("*", path)


@pytest.mark.parametrize("pattern", ["", " ", "/etc/*"])
def test_patterns_that_mean_nothing_are_refused(found: Search, pattern: str) -> None:
    with pytest.raises(ToolFailed):
        found.glob(pattern)


def test_many_files_are_cut(found: Search, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_MOST_FILES", 2)
    assert found.glob("*.py").splitlines() == [
        "a.py",
        "in.py",
        "",
        "(More than 2 files match. Use a narrower pattern.)",
    ]


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not walking.matcher("*a" * 60 + "b")("a" * 250)
    assert not walking.matcher("**/" * 60 + "b")("/".join("a" * 200))
    assert walking.matcher("{a,b}" * 40)("x") is False


@given(st.lists(st.sampled_from(["a", "b", "*", "**", "?", "ab"]), min_size=1, max_size=4), st.data())
def test_a_pattern_means_the_same_as_its_expression(parts: list[str], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(["a", "b", "ab", "ba"]), min_size=1, max_size=4))
    pattern, path = "/".join(parts), "/".join(names)
    if "/" not in pattern and pattern != "**":
        pattern_meant = f"**/{pattern}"
    else:
        pattern_meant = pattern
    spelled = {"*": "[^/]*", "?": "[^/]", "**": None}
    expression = "".join(
        "(?:[^/]+/)*" if part == "**" else f"{spelled.get(part, part)}/" for part in pattern_meant.split("/")
    )
    assert walking.matcher(pattern)(path) == bool(re.fullmatch(expression, f"{path}/"))


# -- lines -------------------------------------------------------------------------------------------------------


def test_lines_are_found_by_expression(found: Search) -> None:
    assert grep(found.grep("hello")) == [
        "README.md:3: hello again",
        "a.py:2: print('hello')",
        "in.py:2: print('hello')",
        ".hidden/e.py:1: hello",
        "src/deep/er/c.pyi:1: hello: str",
    ]
    assert grep(found.grep("^# h", ignore_case=True)) == ["README.md:1: # Hello"]
    assert grep(found.grep("hello", glob="*.{md,pyi}")) == [
        "README.md:3: hello again",
        "src/deep/er/c.pyi:1: hello: str",
    ]
    assert grep(found.grep("hello", path="a.py")) == ["a.py:2: print('hello')"]
    assert grep(found.grep("pass", path="src")) == ["src/b.py:2:     pass"]
    assert grep(found.grep("no such")) == ["No lines match no such."]


def test_lines_around_are_shown(found: Search, work: Path) -> None:
    (work / "c.txt").write_text("".join(f"{number}\n" for number in range(1, 21)))
    assert grep(found.grep("^(5|6|12)$", path="c.txt", context=1)) == [
        "c.txt-4- 4",
        "c.txt:5: 5",
        "c.txt:6: 6",
        "c.txt-7- 7",
        "--",
        "c.txt-11- 11",
        "c.txt:12: 12",
        "c.txt-13- 13",
    ]


def test_where_it_is_allowed_links_are_followed(work: Path) -> None:
    outside = Search(WorkingFolder(work, outside=True), 30_000)
    assert "out.py:1: hello" in grep(outside.grep("hello", glob="*.py"))
    assert "out.py" in outside.glob("*.py").splitlines()
    assert grep(outside.grep("hello", path="../secret.py")) == [f"{work.parent / 'secret.py'}:1: hello"]


@pytest.mark.parametrize("path", ["..", "/etc", "up", "out.py", "nothing", "a\0"])
def test_nothing_outside_is_searched(found: Search, path: str) -> None:
    with pytest.raises(ToolFailed):
        run(found.grep("hello", path))


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "*", "(?P<x>a)(?P<x>b)", ""])
def test_what_is_no_expression_says_why(found: Search, pattern: str) -> None:
    with pytest.raises(ToolFailed, match=r"invalid regular expression|the pattern is empty"):
        run(found.grep(pattern))


def test_binary_files_pipes_and_odd_encodings_are_no_trouble(found: Search, work: Path) -> None:
    (work / "x.bin").write_bytes(b"hello\0hello")
    (work / "latin.txt").write_bytes("hello Größe\n".encode("latin-1"))
    os.mkfifo(work / "pipe")
    (work / "circle").symlink_to("circle")
    (work / os.fsdecode(b"n\xffame.txt")).write_text("hello\n")
    lines = grep(found.grep("hello", glob="*.txt"))
    assert lines[0] == "latin.txt:1: hello Gr\ufffd\ufffde"
    assert len(lines) == 2


def test_an_expression_that_never_ends_is_stopped(work: Path) -> None:
    (work / "a.txt").write_text("hello\n" + "a" * 60 + "!\n")
    slow = Search(WorkingFolder(work), 30_000, seconds=0.5)
    (work / "0.txt").write_text("aaa\n")

    async def test() -> None:
        turns = 0

        async def turning() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        other = asyncio.create_task(turning())
        text = await slow.grep("(a+)+$", glob="*.txt")
        other.cancel()
        assert text.splitlines()[0] == "0.txt:1: aaa"  # what was found until then
        assert "Stopped after 0.5 seconds" in text
        assert turns > 0  # everything else went on meanwhile

    run(test())


def test_a_search_that_nobody_wants_any_longer_is_ended(work: Path) -> None:
    (work / "a.txt").write_text("a" * 60 + "!\n")

    async def test() -> None:
        task = asyncio.create_task(Search(WorkingFolder(work), 30_000).grep("(a+)+$", path="a.txt"))
        while not _searching():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test())
    assert _searching() == []


def _searching() -> list[str]:
    """The processes of this one that search."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line, state = (entry / "cmdline").read_text(), (entry / "stat").read_text()
            except OSError:
                continue
            if walking.__file__ in line and state.rpartition(")")[2].split()[1] == str(os.getpid()):
                found.append(line)
    return found


def test_many_lines_and_long_ones_are_cut(found: Search, work: Path) -> None:
    (work / "many.txt").write_text("x\n" * 600)
    lines = grep(found.grep("x", path="many.txt"))
    assert lines[499] == "many.txt:500: x"
    assert "Truncated: at most 500 lines" in lines[-1]
    (work / "long.txt").write_text("x" * 100_000)
    assert len(grep(found.grep("x", path="long.txt"))[0]) < 600
    small = Search(WorkingFolder(work), 200)
    assert len(run(small.grep("x", path="many.txt"))) < 400
