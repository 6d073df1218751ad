"""The files around the code agree with it: workflows, hooks, templates and the guides for contributors."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.check_github_files import other_problems, schema_problems
from scripts.environment import VERSIONS

ROOT: Final = Path(__file__).resolve().parents[2]
GITHUB: Final = ROOT / ".github"
WORKFLOWS: Final = sorted((GITHUB / "workflows").glob("*.yml"))
GUIDES: Final = (
    "CONTRIBUTING.md",
    "AGENTS.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    ".github/PULL_REQUEST_TEMPLATE.md",
)
TARGETS: Final = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
yaml: Any = import_module("yaml")

needs_check_jsonschema = pytest.mark.skipif(
    importlib.util.find_spec("check_jsonschema") is None, reason="check-jsonschema is in the dev extra only"
)


@needs_check_jsonschema
@pytest.mark.parametrize(
    ("schema", "path", "old", "new"),
    [
        ("vendor.github-workflows", "workflows/ci.yml", "runs-on:", "run-on:"),
        ("custom.github-workflows-require-timeout", "workflows/ci.yml", "timeout-minutes: 60", "name: x"),
        ("vendor.github-issue-forms", "ISSUE_TEMPLATE/bug_report.yml", "type: dropdown", "type: dial"),
    ],
)
def test_a_file_that_github_would_reject_is_reported(
    tmp_path: Path, schema: str, path: str, old: str, new: str
) -> None:
    broken = tmp_path / path
    broken.parent.mkdir()
    text = (GITHUB / path).read_text("utf-8")
    assert old in text
    broken.write_text(text.replace(old, new), "utf-8")
    (problem,) = schema_problems(tmp_path, schema, path)
    assert problem.startswith(f"{schema}: ")
    assert broken.name in problem


def test_a_missing_or_unknown_file_and_an_action_without_a_version_are_reported(tmp_path: Path) -> None:
    assert list(schema_problems(tmp_path, "vendor.dependabot", "dependabot.yml")) == [
        f"dependabot.yml: no such file in {tmp_path.name}"
    ]
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "ci.yml").write_text("steps:\n  - uses: actions/checkout@main\n", "utf-8")
    (tmp_path / "funding.yaml").write_text("github: []\n", "utf-8")
    unknown, unpinned = other_problems(tmp_path)
    assert unknown.startswith("funding.yaml: no schema is known")
    assert unpinned.startswith("workflows/ci.yml: actions/checkout@main: expected a major version")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_targets_that_exist_with_few_permissions(path: Path) -> None:
    text = path.read_text("utf-8")
    workflow = yaml.safe_load(text)
    assert set(re.findall(r"run: make ([a-z-]+)", text)) <= TARGETS
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job in workflow["jobs"].values():
        assert set(job.get("permissions", {}).items()) <= {("contents", "read"), ("id-token", "write")}
    assert "concurrency" in workflow
    assert "secrets." not in text


def test_ci_tests_every_supported_python() -> None:
    jobs = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    versions = jobs["test-pythons"]["steps"][1]["with"]["python-version"].split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    classifiers = [one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one]
    assert sorted(versions) == classifiers == list(VERSIONS)


def test_only_the_publishing_job_may_ask_for_an_identity_and_it_waits_for_the_others() -> None:
    jobs = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
    publish = jobs.pop("publish")
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert sorted(publish["needs"]) == sorted(jobs)
    assert all(job["permissions"] == {"contents": "read"} for job in jobs.values())


def test_the_hooks_are_local_and_run_targets_that_exist() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [one["repo"] for one in repos] == ["local"]
    hooks = repos[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert all((ROOT / word).exists() for hook in hooks for word in re.findall(r"\bscripts/\w+\.py", hook["entry"]))


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_names_only_targets_and_paths_that_exist(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert set(re.findall(r"\bmake ((?!install\b)[a-z]+(?:-[a-z]+)*)\b(?= *[`#\n]| ARGS| PYTHON)", text)) <= TARGETS
    folders = "src|tests|docs|scripts|bench|conformance|examples|deploy"
    paths = re.findall(rf"`((?:\./)?(?:\.github|\.ci|{folders})/[\w./-]+)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []
