"""`make release-check` refuses what must not be published, and names the reason."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from scripts import release_check
from scripts.release_check import (
    REQUIRED_IN_SDIST,
    ReleaseProblem,
    Report,
    check_gateway,
    check_metadata,
    check_paths,
    check_same_wheel,
    check_sdist,
    check_types,
    check_version,
    check_wheel,
    digests_of_package,
)

PROJECT: Final = {
    "version": "1.2.3",
    "description": "Reliable tool calling.",
    "license": "MIT",
    "requires-python": ">=3.11",
}
METADATA: Final = (
    "Metadata-Version: 2.4\nName: moonshim\nVersion: 1.2.3\nSummary: Reliable tool calling.\nLicense-Expression: MIT\n"
    "Requires-Python: >=3.11\nDescription-Content-Type: text/markdown\n\n# Moonshim\n"
)
FILES: Final = {"moonshim/__init__.py": "pass\n", "moonshim/py.typed": "", "moonshim/data.toml": "a = 1\n"}


def wheel(folder: Path, files: dict[str, str], metadata: str = METADATA) -> Path:
    path = folder / "moonshim-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {"moonshim-1.2.3.dist-info/METADATA": metadata}).items():
            archive.writestr(name, text)
    return path


def sdist(folder: Path, *names: str) -> Path:
    path = folder / "moonshim-1.2.3.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"moonshim-1.2.3/{name}"), io.BytesIO())
    return path


def package(folder: Path, files: dict[str, str]) -> dict[str, str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return digests_of_package(folder / "moonshim")


def test_a_wheel_with_the_files_of_the_package_passes(tmp_path: Path) -> None:
    expected = package(tmp_path / "src", FILES | {"moonshim/__pycache__/a.pyc": "x"})
    assert check_wheel(wheel(tmp_path, FILES), expected) == "3 files, 1 of them data, py.typed included"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"moonshim/data.toml": None}, "only in the checkout: moonshim/data.toml"),
        ({"moonshim/py.typed": None}, "only in the checkout: moonshim/py.typed"),
        ({"tests/test_a.py": "x"}, "only in the wheel: tests/test_a.py"),
        ({"moonshim/__init__.py": "old\n"}, "different content: moonshim/__init__.py"),
    ],
)
def test_a_wheel_with_missing_other_or_changed_files_is_refused(
    tmp_path: Path, change: dict[str, str | None], message: str
) -> None:
    expected = package(tmp_path / "src", FILES)
    files = {name: text for name, text in (FILES | change).items() if text is not None}
    with pytest.raises(ReleaseProblem, match=message):
        check_wheel(wheel(tmp_path, files), expected)


def test_a_package_without_py_typed_is_refused(tmp_path: Path) -> None:
    files = {"moonshim/__init__.py": ""}
    with pytest.raises(ReleaseProblem, match=r"py\.typed is missing"):
        check_wheel(wheel(tmp_path, files), package(tmp_path / "src", files))


def test_an_sdist_that_builds_another_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rebuilt").mkdir()
    rebuilt = wheel(tmp_path / "rebuilt", {name: text for name, text in FILES.items() if "data" not in name})
    with pytest.raises(ReleaseProblem, match=r"only in the wheel: moonshim/data\.toml"):
        check_same_wheel(wheel(tmp_path, FILES), rebuilt)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (REQUIRED_IN_SDIST[1:], "missing in the sdist: CHANGELOG.md"),
        ((*REQUIRED_IN_SDIST, "src/moonshim/__pycache__/a.pyc"), "caches in the sdist: src/moonshim/__pycache__"),
        ((*REQUIRED_IN_SDIST, "notes.txt"), "not tracked by git: notes.txt"),
    ],
)
def test_an_sdist_with_missing_files_caches_or_stray_files_is_refused(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ReleaseProblem, match=message):
        check_sdist(sdist(tmp_path, *names), set(REQUIRED_IN_SDIST))


def test_an_sdist_with_the_files_that_git_tracks_passes(tmp_path: Path) -> None:
    archive = sdist(tmp_path, *REQUIRED_IN_SDIST, "PKG-INFO")
    assert "all tracked by git" in check_sdist(archive, set(REQUIRED_IN_SDIST))
    assert "no git to compare with" in check_sdist(archive)


def test_a_path_of_the_machine_is_refused(tmp_path: Path) -> None:
    archive = wheel(tmp_path, FILES | {"moonshim/data.toml": f"folder = '{tmp_path}/x'"})
    with pytest.raises(ReleaseProblem, match=r"a path of this machine is in .*moonshim/data\.toml"):
        check_paths([archive], [str(tmp_path)])
    assert check_paths([archive], ["/somewhere/else"])


@pytest.mark.parametrize(
    ("changelog", "tag", "message"),
    [
        ("## 1.2.2 - 2027-01-01\n", None, "has 0 sections for 1.2.3"),
        ("## 1.2.3 - a\n\n## 1.2.3 - b\n", None, "has 2 sections for 1.2.3"),
        ("## 1.2.3 - 2027-01-31\n", "v1.2.4", "expected v1.2.3"),
        ("## 1.2.3 - unreleased\n", "v1.2.3", "expected a date"),
    ],
)
def test_a_version_without_its_changelog_or_tag_is_refused(changelog: str, tag: str | None, message: str) -> None:
    with pytest.raises(ReleaseProblem, match=message):
        check_version("1.2.3", changelog, tag)


def test_a_version_with_its_changelog_and_tag_passes() -> None:
    assert check_version("1.2.3", "## 1.2.3 - unreleased\n", None)
    assert check_version("1.2.3", "## 1.2.3 - 2027-01-31\n", "v1.2.3")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Version: 1.2.3", "Version: 1.2.2", "Version is '1.2.2', expected '1.2.3'"),
        ("text/markdown", "text/plain", "Description-Content-Type is 'text/plain'"),
        ("# Moonshim\n", "", "the description is empty"),
    ],
)
def test_other_metadata_than_the_project_defines_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert check_metadata(wheel(tmp_path, FILES), PROJECT)
    with pytest.raises(ReleaseProblem, match=message):
        check_metadata(
            wheel(tmp_path, FILES, METADATA.replace(f"\n{old}", f"\n{new}").replace(f" {old}", f" {new}")), PROJECT
        )


def environment_with(folder: Path, program: str) -> Path:
    """What looks like an environment with this `moonshim` command in it."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "bin" / "moonshim").write_text(f"#!{sys.executable}\n{program}\n")
    (folder / "bin" / "moonshim").chmod(0o755)
    return folder


def test_a_gateway_that_does_not_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_check, "install", lambda *_: None)
    environment = environment_with(tmp_path / "environment", "raise SystemExit('cannot import name')")
    with pytest.raises(ReleaseProblem, match=r"(?s)no address printed.*cannot import name"):
        check_gateway(tmp_path / "a.whl", environment)


def test_annotations_that_a_type_checker_cannot_see_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untyped = subprocess.CompletedProcess(
        [], 1, "module is installed, but missing library stubs or py.typed marker", ""
    )
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: untyped)
    with pytest.raises(ReleaseProblem, match="mypy does not see the annotations"):
        check_types(tmp_path)


def test_the_summary_names_every_failed_check(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(reason: str) -> str:
        raise ReleaseProblem(reason)

    report = Report()
    assert report.run("build", lambda: "two files")
    assert not report.run("metadata", refuse, "no licence")
    assert not report.run("paths", refuse, "a path")
    assert report.summary() == 1
    printed = capsys.readouterr()
    assert "ok      build: two files" in printed.out
    assert "FAILED  metadata: no licence" in printed.err
    assert "release-check: 2 of 3 checks FAILED: metadata, paths" in printed.err


def test_the_summary_of_a_release_that_may_be_published() -> None:
    report = Report()
    report.run("build", lambda: "two files")
    assert report.summary() == 0
