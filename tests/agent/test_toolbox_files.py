"""read_file, write_file and edit_file: on every kind of file, and on every kind of path that a model may write."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.agent.toolbox import toolbox
from moonshim.agent.toolbox.files import Files
from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.tools import ToolFailed


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "work").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return Files(WorkingFolder(tmp_path / "work"), 30_000)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def _acts(files: Files, path: str) -> list[Callable[[], str]]:
    return [
        lambda: files.read_file(path),
        lambda: files.write_file(path, "x"),
        lambda: files.edit_file(path, "secret", "x"),
    ]


# -- paths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "a/../../secret.txt",
        "/etc/passwd",
        "/proc/self/environ",
        "~/x",
        "link",
        "folder/secret.txt",
        "loop/../../secret.txt",
        "../work2/x",
    ],
)
def test_nothing_outside_of_the_folder_is_touched(files: Files, work: Path, path: str) -> None:
    (work / "link").symlink_to(work.parent / "secret.txt")
    (work / "folder").symlink_to(work.parent)
    (work / "loop").symlink_to(work)
    (work.parent / "work2").mkdir()
    for act in _acts(files, path):
        with pytest.raises(ToolFailed, match="is outside the working directory"):
            act()
    assert (work.parent / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("path", ["a\0b", "", "  ", "x" * 5000, "/".join("a" * 3000)])
def test_paths_that_are_none_are_refused(files: Files, path: str) -> None:
    with pytest.raises(ToolFailed, match="Error"):
        files.read_file(path)
    with pytest.raises(ToolFailed, match="Error"):
        files.write_file(path, "x")


def test_links_and_absolute_paths_inside_are_fine(files: Files, work: Path) -> None:
    (work / "a.txt").write_text("one")
    (work / "link").symlink_to("a.txt")
    assert files.read_file(str(work / "a.txt")) == files.read_file("link") == files.read_file("./b/../a.txt")
    files.write_file("link", "two")
    assert (work / "link").is_symlink()
    assert (work / "a.txt").read_text() == "two"


def test_a_link_that_leads_in_a_circle_is_refused(files: Files, work: Path) -> None:
    (work / "a").symlink_to("b")
    (work / "b").symlink_to("a")
    for act in _acts(files, "a"):
        with pytest.raises(ToolFailed):
            act()


def test_where_it_is_allowed_files_outside_can_be_read(work: Path, files: Files) -> None:
    outside = Files(WorkingFolder(work, outside=True), 1000)
    assert "secret" in outside.read_file("../secret.txt")
    assert "secret" in outside.read_file(str(work.parent / "secret.txt"))


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_what_is_no_file_is_refused_and_does_not_block(files: Files, work: Path, kind: str) -> None:
    if kind == "folder":
        (work / "x").mkdir()
    elif kind == "pipe":
        os.mkfifo(work / "x")
    else:
        files = Files(WorkingFolder("/dev"), 1000)
        work = Path("/dev")
    path = "zero" if kind == "device" else "x"
    for act in _acts(files, path):
        with pytest.raises(ToolFailed, match=r"is a folder|is not a regular file"):
            act()


# -- reading -----------------------------------------------------------------------------------------------------


def test_lines_come_with_their_numbers(files: Files, work: Path) -> None:
    (work / "a.txt").write_bytes(b"one\r\n\ntwo\x0bstill two\nthree")
    assert files.read_file("a.txt") == "     1\tone\n     2\t\n     3\ttwo\x0bstill two\n     4\tthree"
    assert files.read_file("a.txt", offset=3, limit=1) == (
        "     3\ttwo\x0bstill two\n\n(More lines follow. Continue with offset=4.)"
    )


def test_an_empty_file_says_so(files: Files, work: Path) -> None:
    (work / "a.txt").write_text("")
    assert files.read_file("a.txt") == "(The file is empty.)"


def test_beyond_the_end_there_is_nothing(files: Files, work: Path) -> None:
    (work / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(ToolFailed, match=r"has only 2 lines"):
        files.read_file("a.txt", offset=3)
    for wrong in ({"offset": 0}, {"limit": 0}, {"offset": -1}):
        with pytest.raises(ToolFailed, match="must be 1 or more"):
            files.read_file("a.txt", **wrong)


def test_a_file_that_is_not_there_says_what_is(files: Files, work: Path) -> None:
    (work / "config.toml").write_text("")
    with pytest.raises(ToolFailed, match=r"file confg\.toml does not exist\. Did you mean config\.toml\?"):
        files.read_file("confg.toml")
    with pytest.raises(ToolFailed, match="file no/such/folder does not exist"):
        files.read_file("no/such/folder")


def test_much_is_read_in_parts(work: Path) -> None:
    files = Files(WorkingFolder(work.parent), 1000)
    (work.parent / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 10_001)))
    text, offset, seen = "", 1, 0
    while True:
        text = files.read_file("a.txt", offset=offset)
        assert len(text) < 1200
        seen += sum("\tline" in line for line in text.splitlines())
        if "More lines follow" not in text:
            break
        offset = int(text.rpartition("offset=")[2].rstrip(".)"))
    assert seen == 10_000


def test_a_huge_file_is_read_without_being_held(files: Files, work: Path) -> None:
    with (work / "a.txt").open("wb") as file:
        file.write(b"first\n")
        file.seek(40_000_000)
        file.write(b"x" * 12_000_000 + b"\nlast")
    with pytest.raises(ToolFailed, match="binary"):
        files.read_file("a.txt")
    with (work / "b.txt").open("wb") as file:
        file.write(b"first\n" + b"x" * 12_000_000 + b"\nlast")
    text = files.read_file("b.txt")
    assert len(text) < 10_000
    assert [line[:12] for line in text.splitlines()] == ["     1\tfirst", "     2\txxxxx", "     3\tlast"]
    with pytest.raises(ToolFailed, match="larger than 10 MB"):
        files.edit_file("b.txt", "first", "x")


def test_a_binary_file_is_not_shown(files: Files, work: Path) -> None:
    (work / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    with pytest.raises(ToolFailed, match="is a binary file"):
        files.read_file("a.png")


def test_a_file_that_may_not_be_read_says_so(files: Files, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "a.txt").write_text("x")

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ToolFailed, match=r"cannot read a\.txt: Permission denied"):
        files.read_file("a.txt")


# -- writing -----------------------------------------------------------------------------------------------------


def test_a_new_file_gets_its_folders(files: Files, work: Path) -> None:
    assert files.write_file("a/b/c.txt", "one\ntwo\n") == "Wrote a/b/c.txt: 2 lines, 8 bytes."
    assert (work / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert files.write_file("a/b/c.txt", "x") == "Replaced a/b/c.txt: 1 line, 1 bytes."


def test_a_file_keeps_its_rights_and_nothing_is_left_beside_it(files: Files, work: Path) -> None:
    (work / "run.sh").write_text("x")
    (work / "run.sh").chmod(0o751)
    files.write_file("run.sh", "echo hello")
    files.edit_file("run.sh", "hello", "bye")
    assert stat.S_IMODE((work / "run.sh").stat().st_mode) == 0o751
    assert os.listdir(work) == ["run.sh"]  # noqa: PTH208


def test_what_cannot_be_written_leaves_the_file_as_it_was(
    files: Files, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a.txt").write_text("old")
    with pytest.raises(ToolFailed, match="cannot be encoded in utf-8"):
        files.write_file("a.txt", "half \ud83d")

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolFailed, match="No space left on device"):
        files.write_file("a.txt", "new")
    assert (work / "a.txt").read_text() == "old"
    assert os.listdir(work) == ["a.txt"]  # noqa: PTH208


def test_a_file_in_the_place_of_a_folder_says_so(files: Files, work: Path) -> None:
    (work / "a").write_text("x")
    with pytest.raises(ToolFailed, match="cannot write a/b"):
        files.write_file("a/b", "x")


# -- editing -----------------------------------------------------------------------------------------------------


def test_what_is_there_once_is_replaced(files: Files, work: Path) -> None:
    (work / "a.py").write_text("one\ntwo\nthree\n")
    assert files.edit_file("a.py", "two", "2\n2") == "Edited a.py at line 2."
    assert (work / "a.py").read_text() == "one\n2\n2\nthree\n"
    assert files.edit_file("a.py", "\n2", "", replace_all=True) == "Edited a.py in 2 places."
    assert (work / "a.py").read_text() == "one\nthree\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("a", "b", r"occurs 3 times in x\.py \(lines 1, 2, 4\)\. Include more surrounding lines"),
        ("nothing", "b", "old_string is not in x.py. The text must match exactly. Read the file again"),
        ("   def f():", "b", r"Its first line is at line 3: '  def f\(\):'"),
        ("def f():\n    pass", "b", "Its first line is at line 3"),
        ("", "b", "old_string is empty"),
        ("a", "a", "are identical"),
        ("\n\n\n", "x", "including white space"),
    ],
)
def test_what_is_not_there_once_says_why(files: Files, work: Path, old: str, new: str, why: str) -> None:
    text = "a\na\n  def f():\n  p = a\n"
    (work / "x.py").write_text(text)
    with pytest.raises(ToolFailed, match=why):
        files.edit_file("x.py", old, new)
    assert (work / "x.py").read_text() == text


@pytest.mark.parametrize(
    "data",
    [
        "Größe\r\nzwei\r\n".encode(),
        b"\xef\xbb\xbf" + "Größe\nzwei\n".encode(),
        b"\xff\xfe" + "Größe\nzwei\n".encode("utf-16-le"),
        b"\xfe\xff" + "Größe\r\nzwei\r\n".encode("utf-16-be"),
        "Größe\nzwei\n".encode("latin-1"),
    ],
    ids=["crlf", "bom", "utf-16-le", "utf-16-be", "latin-1"],
)
def test_the_encoding_and_the_line_ends_of_a_file_stay(files: Files, work: Path, data: bytes) -> None:
    (work / "a.txt").write_bytes(data)
    assert "\tGröße\n" in files.read_file("a.txt")
    files.edit_file("a.txt", "Größe\nzwei", "Länge\nzwei")
    changed = (work / "a.txt").read_bytes()
    assert len(changed) == len(data) or b"\xc3" in data
    files.edit_file("a.txt", "Länge\nzwei", "Größe\nzwei")
    assert (work / "a.txt").read_bytes() == data


def test_what_an_encoding_cannot_say_is_told(files: Files, work: Path) -> None:
    (work / "a.txt").write_bytes("Größe\n".encode("latin-1"))
    with pytest.raises(ToolFailed, match="cannot be encoded in latin-1"):
        files.edit_file("a.txt", "Größe", "👀")


@given(st.binary(max_size=60), st.text("ab\n", min_size=1, max_size=2), st.text("xy\n", max_size=3))
def test_only_what_was_meant_is_changed(tmp_path_factory: Any, data: bytes, old: str, new: str) -> None:
    folder = tmp_path_factory.mktemp("files")
    (folder / "a").write_bytes(data)
    try:
        Files(WorkingFolder(folder), 1000).edit_file("a", old, new)
    except ToolFailed:
        assert (folder / "a").read_bytes() == data
    else:
        after = (folder / "a").read_bytes()
        assert len(after) != len(data) or after != data


# -- as tools ----------------------------------------------------------------------------------------------------


def test_the_box_has_its_tools_and_those_that_change_something_ask(work: Path, files: Files) -> None:
    tools = toolbox(work)
    assert [one.name for one in tools] == ["bash", "read_file", "write_file", "edit_file", "glob", "grep"]
    assert [one.name for one in tools if one.asks] == ["bash", "write_file", "edit_file"]
    for one in tools:
        assert one.description
        assert all("description" in told for told in one.parameters["properties"].values())
    named = {one.name: one for one in tools}
    named["write_file"](path="a.txt", content="x")
    assert "x" in named["read_file"]("a.txt")
    assert "a.txt" in named["glob"]("*")
    assert "a.txt:1: x" in asyncio.run(named["grep"]("x"))
