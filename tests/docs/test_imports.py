"""What the README, the pages and the examples import, and name in their text, is public."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PUBLIC: Final = (
    "moonshim",
    "moonshim.types",
    "moonshim.agent",
    "moonshim.agent.toolbox",
    "moonshim.integrations",
    "moonshim.simulator",
    "moonshim.testing",
)
INTERNAL_PAGES: Final = ("architecture.md", "hosts.md")
"""Pages that say where in the source something is, for people who change it."""
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md")))
CODE: Final = re.compile(r"^```py(?:thon)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
ENTRY_POINTS: Final = ("moonshim.transformers",)
FILES: Final = ("json", "toml", "db", "py", "service", "sock")
"""Endings of files that are called `moonshim` too."""
_SPANS: Final = ROOT / "src" / "moonshim" / "gateway" / "observe" / "otel_spans.py"
ATTRIBUTES: Final = frozenset(re.findall(r'"(moonshim\.\w+)"', _SPANS.read_text("utf-8")))
"""Names of attributes and events in traces."""


def sources() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield from ((page.name, code) for code in CODE.findall(page.read_text("utf-8")))
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield path.name, path.read_text("utf-8")


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Modules of ours and the names that are taken from them; an empty name for the module itself."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "moonshim")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "moonshim":
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_snippets_and_examples_import_public_names_alone() -> None:
    found = [(where, *one) for where, code in sources() for one in imported(code)]
    assert len(found) > 50
    assert [one for one in found if one[1] not in PUBLIC] == []
    for where, module, name in found:
        assert not name or name in importlib.import_module(module).__all__, f"{where}: {module}.{name}"


def test_attributes_of_the_package_that_snippets_use_are_public() -> None:
    import moonshim

    for where, code in sources():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "moonshim":
                assert node.attr in moonshim.__all__, f"{where}: moonshim.{node.attr}"


def test_the_text_of_the_pages_names_public_modules_alone() -> None:
    for page in PAGES:
        if page.name in INTERNAL_PAGES or page.parent.name == "decisions":
            continue
        for dotted in re.findall(r"`(moonshim(?:\.\w+)+)", page.read_text("utf-8")):
            if dotted.rpartition(".")[2] in FILES or dotted in {*ENTRY_POINTS, *PUBLIC, *ATTRIBUTES}:
                continue
            module, _, name = dotted.rpartition(".")
            assert module in PUBLIC, f"{page.name}: {dotted}"
            assert name in importlib.import_module(module).__all__, f"{page.name}: {dotted}"
