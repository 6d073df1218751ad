"""A public class name exists once in the tree: who reads it knows which class is meant, and a search finds one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "moonshim"


def test_a_public_class_name_exists_once_in_the_tree() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(file.relative_to(SOURCE).as_posix())
    assert len(homes) > 100, "the source was found"
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
