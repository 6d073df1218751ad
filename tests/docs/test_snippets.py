"""Every Python snippet of the README and the pages type-checks, and runs with only the packages that it asks for.

"Only" is meant: a snippet runs in a fresh interpreter whose packages are those that the extra named on its page brings,
as the metadata of the built wheel and of the installed packages say, and those that the snippet itself imports.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from moonshim.simulator import Simulator

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = ROOT / "README.md"
GATEWAY: Final = "127.0.0.1:8484"
HOST: Final = re.compile(r"https://api\.moonshot\.ai/v1|http://localhost:8000/v1")
CODE: Final = re.compile(r"^```py(?:thon)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALLING: Final = re.compile(r"""pip install "?(?:moonshim|\.)(?:\[(\w+)\])?(?=["`\s])""")


class Snippet(NamedTuple):
    name: str
    code: str
    extra: str | None
    """What its page says to install; None: the engine alone."""


def snippets() -> Iterator[Snippet]:
    for page in [README, *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text("utf-8")
        for number, found in enumerate(CODE.finditer(text)):
            # The README says it in each section; a page says it once.
            start = text.rfind("\n## ", 0, found.start()) if page == README else 0
            named = INSTALLING.findall(text, max(start, 0), found.start())
            yield Snippet(f"{page.stem.replace('-', '_')}_{number}", found[1], (named[-1] if named else "") or None)


SNIPPETS: Final = tuple(snippets())


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> list[Requirement]:
    """What the wheel says that it requires."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    return [Requirement(line) for line in lines]


def brought_by(requirements: list[Requirement], extras: frozenset[str]) -> frozenset[str]:
    """The names of all distributions that these requirements lead to, those of the extras included."""
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(requirements, extras)]
    while waiting:
        listed, wanted = waiting.pop()
        for one in listed:
            if one.marker is not None and not any(one.marker.evaluate({"extra": extra}) for extra in (wanted or {""})):
                continue
            name, more = canonicalize_name(one.name), frozenset(one.extras)
            if (name, more) in seen:
                continue
            seen.add((name, more))
            if name == "moonshim":
                waiting.append((requirements, more))
                continue
            found.add(name)
            waiting.append((installed_requirements(name), more))
    return frozenset(found)


@cache
def installed_requirements(name: str) -> list[Requirement]:
    return [Requirement(line) for line in metadata.requires(name) or ()]


def imported_by(code: str) -> set[str]:
    """The distributions of the packages that a snippet imports itself, beside ours."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules.add(node.module.partition(".")[0])
    known = metadata.packages_distributions()
    return {canonicalize_name(name) for module in modules - {"moonshim"} for name in known.get(module, ())}


def folder_with(distributions: frozenset[str], folder: Path) -> Path:
    """A folder of packages that has these distributions and no other."""
    for name in distributions:
        installed = metadata.distribution(name)
        for top in {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(str(installed.locate_file(top))).resolve())
    return folder


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with Simulator(behaviour="selfhost", log=lambda seen: None).running() as server:
        yield f"{server.url}/v1"


def test_there_are_snippets_for_the_engine_and_for_extras() -> None:
    assert {snippet.extra for snippet in SNIPPETS} >= {None, "agent", "simulator"}
    agent = next(snippet for snippet in SNIPPETS if "moonshim.agent" in snippet.code)
    assert (agent.name.startswith("README"), agent.extra) == (True, "agent")


def test_what_an_extra_brings_is_read_from_metadata(requirements: list[Requirement]) -> None:
    assert brought_by(requirements, frozenset()) == {"msgspec"}
    simulator = brought_by(requirements, frozenset({"simulator"}))
    assert {"msgspec", "uvicorn", "httptools", "h11"} <= simulator
    assert "aiohappyeyeballs" not in simulator
    assert brought_by(requirements, frozenset({"agent"})) == simulator | {"aiohappyeyeballs"}
    assert "rich" not in brought_by(requirements, frozenset({"gateway"}))


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda one: one.name)
def test_a_snippet_runs_with_only_the_extra_that_its_page_names(
    snippet: Snippet, requirements: list[Requirement], host: str, demo: str, tmp_path: Path
) -> None:
    allowed = brought_by(requirements, frozenset({snippet.extra} if snippet.extra else ()))
    own = [Requirement(name) for name in imported_by(snippet.code)]
    packages = folder_with(allowed | brought_by(own, frozenset()), tmp_path)
    code = HOST.sub(host, snippet.code).replace(GATEWAY, demo)
    path = os.pathsep.join([str(packages), str(ROOT / "src")])
    # Without `site` there are no packages but those.
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr


def test_every_snippet_passes_a_strict_type_checker(tmp_path: Path) -> None:
    for snippet in SNIPPETS:
        (tmp_path / f"{snippet.name}.py").write_text(snippet.code)
    cache_dir = ROOT / ".pytest_cache" / "mypy"
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(cache_dir), "."]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
