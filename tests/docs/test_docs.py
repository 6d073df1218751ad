"""The pages that list rules name every rule of the source, and no other.

The source is read, not run: a rule is the first argument of `Repaired`, `Notice` and
`Change`, or whatever a function that makes one takes as its `rule`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from moonshim.engine.request.messages.call_order import _DETAILS

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src" / "moonshim"
MAKERS: Final = {"Repaired": "repairs", "Notice": "repairs", "Change": "requests"}
"""What makes a rule known, and the page that lists it."""
PAGES: Final = tuple(sorted(set(MAKERS.values())))
PATTERNS: Final = {"result_{}": tuple(_DETAILS)}
"""Rules that are put together from a word, and the words."""
NAMES: Final = ("rule", "_rule")
"""What a rule is called that is on its way from somewhere else; where it comes from is read, too."""


class Module:
    """One file of the source, and what it says of rules."""

    def __init__(self, path: Path) -> None:
        self.name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        self.tree = ast.parse(path.read_text("utf-8"))
        self.nodes = list(ast.walk(self.tree))
        imported = [node for node in self.nodes if isinstance(node, ast.ImportFrom)]
        self.imported = {alias.name for node in imported for alias in node.names}
        self.page = MAKERS["Change"] if "Change" in self.imported else MAKERS["Repaired"]
        self.functions = [node for node in self.nodes if isinstance(node, ast.FunctionDef)]
        self.classes = [node for node in self.nodes if isinstance(node, ast.ClassDef)]
        self.helpers = _helpers(self.functions)


def _helpers(functions: Iterable[ast.AST]) -> dict[str, int]:
    """The functions that take a rule, and where."""
    return {
        one.name: place
        for one in functions
        if isinstance(one, ast.FunctionDef) and (place := _place_of_rule(one)) is not None
    }


def _place_of_rule(function: ast.FunctionDef) -> int | None:
    """Which positional argument of a function is the rule, not counting `self`."""
    names = [argument.arg for argument in function.args.args if argument.arg != "self"]
    return names.index("rule") if "rule" in names else None


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(path) for path in sorted(SOURCE.rglob("*.py")))


@cache
def rules_of_source() -> dict[str, frozenset[str]]:
    """The rules of each page, as the source has them."""
    found: dict[str, set[str]] = {page: set() for page in PAGES}
    for module in modules():
        found[module.page].update(rule for node in _sources(module) for rule in _words(node, module))
    return {page: frozenset(rules) for page, rules in found.items()}


def _sources(module: Module) -> Iterator[ast.expr]:
    """Every expression of a file that says a rule."""
    for node in module.nodes:
        match node:
            case ast.Call():
                yield from _called(node, module)
            case ast.Assign(targets=[target]) if _name(target) in NAMES:
                yield node.value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Call(func=func)):
                yield from _unpacked(names, func)
            case ast.comprehension(target=ast.Tuple(elts=names), iter=ast.Call(func=func)):
                yield from _unpacked(names, func)
            case ast.FunctionDef():
                yield from _defaults(node)
                if node.name in NAMES:
                    yield from _given(node)


def _called(call: ast.Call, module: Module) -> Iterator[ast.expr]:
    name = _name(call.func)
    place = 0 if name in MAKERS else module.helpers.get(name)
    if place is None and isinstance(call.func, ast.Attribute):
        place = _methods(module).get((_name(call.func.value), name))
    if place is not None and len(call.args) > place:
        yield call.args[place]
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "rule")


@cache
def _methods(module: Module) -> dict[tuple[str, str], int]:
    """Methods of imported classes that take a rule: of a `ChangeCounter`, where the variable is called `counter`."""
    classes = [one for other in modules() for one in other.classes if one.name in module.imported]
    return {
        (variable, name): place
        for one in classes
        for variable in (one.name.lower(), "counter")
        for name, place in _helpers(one.body).items()
    }


def _unpacked(names: Iterable[ast.expr], func: ast.expr) -> Iterator[ast.expr]:
    """What a function of ours gives in the place that is called a rule here."""
    place = next((place for place, name in enumerate(names) if _name(name) in NAMES), None)
    if place is None:
        return
    for function in (one for module in modules() for one in module.functions if one.name == _name(func)):
        for value in _given(function):
            for part in _branches(value):
                if isinstance(part, ast.Tuple):
                    yield part.elts[place]


def _given(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield node.value


def _defaults(function: ast.FunctionDef) -> Iterator[ast.expr]:
    arguments = function.args
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from (value for name, value in pairs if name.arg == "rule" and value is not None)


def _branches(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _branches(node.body)
        yield from _branches(node.orelse)
    else:
        yield node


def _words(node: ast.expr, module: Module) -> Iterator[str]:
    """The rules that an expression can be."""
    for part in _branches(node):
        match part:
            case ast.Constant(value=str(rule)):
                yield from [rule] if rule else []
            case ast.Constant(value=None):
                pass
            case ast.JoinedStr(values=values):
                pattern = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in values)
                assert pattern in PATTERNS, f"{module.name}:{part.lineno}: which rules can {pattern!r} be?"
                yield from (pattern.format(word) for word in PATTERNS[pattern])
            case _ if _name(part) not in NAMES:
                pytest.fail(f"{module.name}:{part.lineno}: no rule can be read from {ast.unparse(part)!r}")


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def rules_of_page(page: str) -> list[str]:
    """The rules that the tables of a page name, in order: what stands in backticks in a column called `rule`."""
    found, is_rules = list[str](), False
    for line in (ROOT / "docs" / "reference" / f"{page}.md").read_text("utf-8").splitlines():
        if not line.startswith("|"):
            is_rules = False
            continue
        first = line.split("|")[1].strip()
        is_rules = is_rules or first == "rule"
        if is_rules:
            found += re.findall(r"`([^`]+)`", first)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_of_the_source_is_on_its_page(page: str) -> None:
    assert sorted(rules_of_source()[page] - set(rules_of_page(page))) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_of_a_page_is_in_the_source(page: str) -> None:
    assert sorted(set(rules_of_page(page)) - rules_of_source()[page]) == []


@pytest.mark.parametrize("page", PAGES)
def test_no_rule_is_explained_twice(page: str) -> None:
    named = rules_of_page(page)
    assert sorted({rule for rule in named if named.count(rule) > 1}) == []


RUN_ELSEWHERE = {"agent.md": "tests/agent/test_agent_page.py"}
"""Pages whose snippets need a host: the tests that give them one."""
GATEWAY = "127.0.0.1:8484"
"""test_snippets.py runs the snippets that need a gateway."""


def test_the_tests_of_pages_that_need_a_host_are_there() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert page in (ROOT / test).read_text("utf-8")


def snippets() -> list[tuple[str, str]]:
    pages = sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name not in RUN_ELSEWHERE)
    return [
        (page.name, code)
        for page in pages
        for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        if GATEWAY not in code
    ]


@pytest.mark.parametrize(("page", "code"), snippets())
def test_the_snippets_of_the_pages_run(page: str, code: str) -> None:
    exec(compile(code, page, "exec"), {})


def test_every_link_of_the_pages_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))]
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    wrong: list[str] = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        cells = 0
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            # Neither a bar that is escaped nor one inside of code is a border.
            count = re.sub(r"`[^`]*`|\\\\\|", "", line).count("|") if line.startswith("|") else 0
            if count and cells and count != cells:
                wrong.append(f"{page.name}:{number}")
            cells = (cells or count) if count else 0
    assert wrong == []


def test_every_test_file_that_the_pages_name_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = [(page.name, path) for page in pages for path in re.findall(r"\btests/[\w/]+\.py", page.read_text("utf-8"))]
    assert named
    assert [(page, path) for page, path in named if not (ROOT / path).exists()] == []


def test_the_source_is_really_read() -> None:
    rules = rules_of_source()
    assert {"id_repeated", "k3_value_as_string", "call_field", "arguments_leading_null"} <= rules["repairs"]
    assert {"result_orphan", "reasoning_lost", "fixed_sampling", "unresolved_reference"} <= rules["requests"]
