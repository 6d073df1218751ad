"""Find awkward phrases in the README, the docs, help texts and messages, and suggest better ones.

Checked are the Markdown pages, the help of the Makefile, and every string of two words or more in src/ that is not a
docstring. Code in pages (fenced or in backticks) is left out: it quotes programs. A line that has to quote a phrase
ends with `prose: quoted` in a comment.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
QUOTED: Final = "prose: quoted"
PHRASES: Final = {
    r"told(?! apart)": "reported, shown",
    r"said": "reported, set, written",
    r"(?:is|are|was|were|be|been|has|have) kept(?! \w+ing)": "stored, preserved, unchanged",
    r"heard": "received, read",
    r"hush(?:es|ed)?": "closed, suppressed",
    r"whoever": "if you …, clients that …",
    r"nobody": "no client, no one, unknown",
    r"(?<!there )(?:is|are|was|were) (?-i:none)": "there is no …, missing",
    r"(?<!there )(?:is|are|was) no (?!longer|more|less|different)\w+": "is not a …",
    r"anew": "again",
    r"of ours": "our, Moonshim's",
    r"(?:put|puts|putting|made|make|makes) right": "fix, correct, reliable",
    r"behind (?:it|them|its|their|the (?:end|last|first|call|calls|text|name|number))": "after",
    r"manners": "behaviour",
    r"a text(?= that| of|[.,;:]|$)": "a string, text",
    r"whole numbers?": "integer",
    r"(?:a|the|its) switch(?!ed| of)": "a boolean, an option",
    r"yes or no": "a boolean",
}
"""What to avoid (matched as words, in any case) -> what to write."""
_PATTERN: Final = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in PHRASES), re.IGNORECASE)
_CODE: Final = re.compile(r"^ *(```|~~~).*?^ *\1|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE)
_MIN_WORDS: Final = 2


class Finding(NamedTuple):
    """A phrase to avoid, and where it is."""

    path: Path
    line: int
    phrase: str

    def __str__(self) -> str:
        advice = next(better for phrase, better in PHRASES.items() if re.fullmatch(phrase, self.phrase, re.IGNORECASE))
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.phrase!r}: write {advice}"


def pages() -> list[Path]:
    """Every Markdown page that people read; the changelog before this rule is history."""
    roots = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    return sorted(
        [*roots, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *ROOT.glob(".github/**/*.md")]
    )


def check_page(path: Path) -> Iterator[Finding]:
    text = path.read_text("utf-8")
    without_code = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    # A phrase may be broken over two lines.
    yield from _search(path, text, without_code.replace("\n", " "), 0)


def check_source(path: Path) -> Iterator[Finding]:
    text = path.read_text("utf-8")
    for line, string in strings(ast.parse(text)):
        yield from _search(path, text, string, line)


def check_makefile(path: Path) -> Iterator[Finding]:
    text = path.read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        yield from _search(path, text, line.partition("##")[2], number)


def _search(path: Path, text: str, prose: str, line: int) -> Iterator[Finding]:
    lines = text.splitlines()
    for found in _PATTERN.finditer(prose):
        number = line or text.count("\n", 0, found.start()) + 1
        if QUOTED not in lines[number - 1]:
            yield Finding(path, number, found[0])


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings of a module that can be a message, each with its line; the fields of an f-string are left out."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            text = node.value
        else:
            continue
        if len(text.split()) >= _MIN_WORDS:
            yield node.lineno, text


def main() -> int:
    findings = [finding for page in pages() for finding in check_page(page)]
    findings += [found for path in sorted((ROOT / "src").rglob("*.py")) for found in check_source(path)]
    findings += check_makefile(ROOT / "Makefile")
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} phrases to rewrite; {Path(__file__).name} lists them all, and why.", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
