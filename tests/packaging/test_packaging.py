"""What is shipped: one version, the types, one dependency, and an import that brings nothing else along."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from scripts.dependencies import CLEAN, LOCK, NOT_AUDITED, VULNERABLE, verdict

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src" / "moonshim"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Modules that mean I/O, a clock or an event loop, and that neither Python nor msgspec loads by itself. That the
# engine does not import `os`, `time` and the like (which are always loaded) is for import-linter to check.
NEVER_LOADED: Final = {"asyncio", "concurrent", "http", "logging", "random", "selectors", "socket", "ssl", "subprocess"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as users get it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def modules_loaded_by(statement: str, *, path: Path | None = None) -> set[str]:
    """The top-level modules that a fresh interpreter loads for this statement, beyond those msgspec needs."""
    program = "\n".join(
        [
            "import json, sys",
            "import msgspec, msgspec.json, msgspec.structs",
            f"sys.path.insert(0, {str(path)!r})" if path else "",
            "before = set(sys.modules)",
            statement,
            "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))",
        ]
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_version_stands_in_one_place(wheel: Path) -> None:
    version = PROJECT["version"]
    assert metadata_of(wheel)["Version"] == version
    assert importlib.metadata.version("moonshim") == version
    repeated = [path.name for path in SOURCE.rglob("*.py") if f'"{version}"' in path.read_text(encoding="utf-8")]
    assert repeated == []


def test_the_changelog_has_the_version() -> None:
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_msgspec_is_the_only_dependency(wheel: Path) -> None:
    required = metadata_of(wheel).get_all("Requires-Dist", [])
    assert [line for line in required if "extra ==" not in line] == PROJECT["dependencies"]
    assert [line.partition(">")[0] for line in PROJECT["dependencies"]] == ["msgspec"]


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert shipped == {path.relative_to(SOURCE.parent).as_posix() for path in files}
    assert "moonshim/py.typed" in shipped


def test_the_wheel_brings_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        assert "moonshim = moonshim.cli:main" in archive.read(name).decode()


def test_the_wheel_can_be_imported(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    place = f"import moonshim; assert moonshim.__file__.startswith({str(tmp_path)!r}), moonshim.__file__"
    assert "moonshim" in modules_loaded_by(place, path=tmp_path)


def test_importing_moonshim_loads_only_msgspec_and_the_standard_library() -> None:
    loaded = modules_loaded_by("import moonshim")
    assert "moonshim" in loaded
    assert loaded - sys.stdlib_module_names == {"moonshim"}


def test_importing_moonshim_loads_no_io() -> None:
    assert modules_loaded_by("import moonshim") & NEVER_LOADED == set()


def required_for(extra: str) -> list[Requirement]:
    """All that this extra names, and the extras in it, and Moonshim itself."""
    found = [Requirement(line) for line in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra])]
    inner = [name for one in found if one.name == "moonshim" for name in one.extras]
    return [one for one in found if one.name != "moonshim"] + [one for name in inner for one in required_for(name)]


def test_the_lock_has_a_version_that_fits_for_everything_that_development_installs() -> None:
    pins = [Requirement(line) for line in LOCK.read_text().splitlines() if line[:1] not in ("#", "")]
    versions: dict[str, list[Version]] = {}
    for pin in pins:
        (exact,) = pin.specifier
        assert exact.operator == "==", pin
        versions.setdefault(pin.name.lower().replace("_", "-"), []).append(Version(exact.version))
    for wanted in required_for("dev"):
        pinned = versions.get(wanted.name.lower().replace("_", "-"), [])
        assert pinned, f"{wanted} is not in the lock: run make lock"
        assert all(wanted.specifier.contains(version) for version in pinned), f"{wanted}: run make lock"


def test_the_lock_names_no_package_index() -> None:
    text = LOCK.read_text()
    assert "://" not in text
    assert "--" not in text


SOUND = {"name": "a", "version": "1", "vulns": []}
WEAK = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        ([SOUND], CLEAN, "no known vulnerabilities in 1 packages"),
        ([SOUND, WEAK], VULNERABLE, "b 2: CVE-1, fixed in 3"),
        ([SOUND, SKIPPED], NOT_AUDITED, "NOT AUDITED: 1 of 2 packages"),
        ([SKIPPED, WEAK], VULNERABLE, "NOT AUDITED: 1 of 2 packages"),
        ([], NOT_AUDITED, "NOT AUDITED"),
    ],
)
def test_an_audit_says_what_it_could_not_look_up(found: list[Any], code: int, words: str) -> None:
    given, lines = verdict(json.dumps({"dependencies": found}))
    assert given == code
    assert words in "\n".join(lines)


def test_an_audit_that_did_not_reach_its_service_does_not_pass() -> None:
    code, (line,) = verdict("", "Traceback …\nConnectionError: no route to host")
    assert code == NOT_AUDITED
    assert "NOT AUDITED" in line
    assert "no route to host" in line
