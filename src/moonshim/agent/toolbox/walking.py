"""A folder and a pattern -> the files and the lines that match. Also a program: see `main`.

Uses only the standard library, so that the program starts in a moment: an expression from a model can run forever, and
Python's `re` can only be interrupted by ending its process.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

SKIPPED = frozenset({".git", ".hg", ".svn"})
LARGEST = 5 * 2**20
"""Maximum bytes of a file to search."""
LONGEST_LINE = 500
_LOOKED_AT = 8192


def walk(root: str, base: str) -> Iterator[tuple[str, str]]:
    """The files under `base`, each with its relative path, sorted by name.

    Version control folders are skipped. Links to folders are not followed, and links to files only if they lead inside
    `root` (empty: anywhere).
    """
    waiting = [("", base)]
    while waiting:
        inner, folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        folders: list[tuple[str, str]] = []
        for entry in entries:
            if entry.name in SKIPPED:
                continue
            path = f"{inner}/{entry.name}" if inner else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append((path, entry.path))
                elif entry.is_file() and (not entry.is_symlink() or is_inside(os.path.realpath(entry.path), root)):
                    yield path, entry.path
            except OSError:
                continue
        waiting += reversed(folders)


def is_inside(path: str, root: str) -> bool:
    return not root or path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a relative path matches: `*` stays within a name, `**` is any number of folders.

    A pattern without a slash matches names in any folder; `{a,b}` is either.

    >>> fits = matcher("src/**/*.{py,pyi}")
    >>> fits("src/a.py"), fits("src/b/c.pyi"), fits("a.py"), fits("src/a.txt"), matcher("*.py")("src/a.py")
    (True, True, False, False, True)
    """
    choices = [_segments(one) for one in _expand_braces(pattern.removeprefix("./"))]
    return lambda path: any(_fits(segments, path.split("/")) for segments in choices)


def _expand_braces(pattern: str) -> list[str]:
    """`a{b,c}` -> `ab`, `ac`. Bounded: a pattern with many braces is not expanded."""
    done, waiting = list[str](), [pattern]
    while waiting:
        one = waiting.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if found is None or len(done) + len(waiting) > 200:
            done.append(one)
            continue
        waiting += [one[: found.start()] + choice + one[found.end() :] for choice in found[1].split(",")]
    return done


def _segments(pattern: str) -> list[re.Pattern[str] | None]:
    """None is `**`. fnmatch's translation of `*` cannot blow up: it never backtracks."""
    parts = [part for part in pattern.split("/") if part and part != "."]
    if len(parts) == 1 and "/" not in pattern and parts[0] != "**":
        parts.insert(0, "**")
    return [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]


def _fits(segments: list[re.Pattern[str] | None], names: list[str]) -> bool:
    """Track every position in the pattern that can be reached, name by name: never more than the pattern is long."""
    states = _skip_globstars({0}, segments)
    for name in names:
        following: set[int] = set()
        for state in states:
            if state < len(segments):
                segment = segments[state]
                if segment is None:
                    following.add(state)
                elif segment.match(name):
                    following.add(state + 1)
        states = _skip_globstars(following, segments)
    # `src/**` is everything in src.
    return len(segments) in states


def _skip_globstars(states: set[int], segments: list[re.Pattern[str] | None]) -> set[int]:
    """`**` may match no folder at all."""
    out = set(states)
    for state in sorted(states):
        while state < len(segments) and segments[state] is None:
            state += 1
            out.add(state)
    return out


def search(query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines that match, file by file; then how many files were searched."""
    try:
        wanted = re.compile(query["pattern"], re.IGNORECASE if query["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        yield {"error": f"invalid regular expression {query['pattern'][:LONGEST_LINE]!r}: {error}"}
        return
    base, root = query["base"], query["root"]
    fits = matcher(query["glob"]) if query["glob"] else lambda path: True
    files = [("", base)] if os.path.isfile(base) else walk(root, base)  # noqa: PTH113 - no pathlib: see above
    looked_at = 0
    for inner, path in files:
        if inner and not fits(inner):
            continue
        lines = _lines(path)
        if lines is None:
            continue
        looked_at += 1
        yield from _search_lines(lines, path, wanted, query["context"])
    yield {"files": looked_at}


def _search_lines(lines: list[str], path: str, wanted: re.Pattern[str], context: int) -> Iterator[dict[str, Any]]:
    hits = [number for number, line in enumerate(lines) if wanted.search(line)]
    near = {number for hit in hits for number in range(max(hit - context, 0), min(hit + context + 1, len(lines)))}
    matched = set(hits)
    for number in sorted(near):
        line = lines[number]
        shown = line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + " …"
        yield {"path": path, "line": number + 1, "text": shown, "hit": number in matched}


def _lines(path: str) -> list[str] | None:
    """None: binary, or unreadable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(LARGEST)
    except OSError:
        return None
    if b"\0" in data[:_LOOKED_AT]:
        return None
    return [line.rstrip("\r") for line in data.decode("utf-8", "replace").removesuffix("\n").split("\n")]


def main() -> None:
    """Read a query as one line of JSON, and write results as lines of JSON, as they are found."""
    query = json.loads(sys.stdin.buffer.readline())
    out = sys.stdout.buffer
    for found in search(query):
        out.write(json.dumps(found).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
