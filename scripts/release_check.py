"""This checkout -> sdist and wheel in dist/, and the reasons why they must not be published, if there are any.

`make release-check` runs every check below, prints one line for each, and exits with 1 if one fails. `--tag v1.2.3`
adds the checks of a real release: the tag is the version, and the changelog has a date for it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Container, Iterable, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

from scripts.environment import ROOT, CannotSetUp, install, new_environment, tool_environment

DIST: Final = ROOT / "dist"
PACKAGE: Final = ROOT / "src" / "moonshim"
EXAMPLE: Final = ROOT / "examples" / "leaked_markers.sse"
TOOLS: Final = ROOT / ".venvs" / "release"
CACHES: Final = ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".git", ".venv", ".venvs")
REQUIRED_IN_SDIST: Final = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "src/moonshim/py.typed")
START_SECONDS: Final = 30
STOP_SECONDS: Final = 30


class ReleaseProblem(Exception):
    """A check failed. The message says what is wrong and what to do about it."""


# --- what the archives contain ----------------------------------------------------------------------------------


def digests_of_wheel(wheel: Path) -> dict[str, str]:
    """The SHA-256 of every file in a wheel, without RECORD, which lists the others."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}


def digests_of_package(package: Path) -> dict[str, str]:
    """The SHA-256 of every file of the package as it is in the checkout, under the name that it has in a wheel."""
    return {
        path.relative_to(package.parent).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in package.rglob("*")
        if path.is_file() and not set(path.parts) & set(CACHES)
    }


def check_wheel(wheel: Path, package: Mapping[str, str]) -> str:
    """The wheel has every file of the package, with the same bytes, and nothing else."""
    shipped = {name: digest for name, digest in digests_of_wheel(wheel).items() if ".dist-info/" not in name}
    _same(package, shipped, "the checkout", "the wheel")
    if "moonshim/py.typed" not in shipped:
        raise ReleaseProblem("moonshim/py.typed is missing: type checkers would ignore the annotations")
    data = sum(not name.endswith((".py", "/py.typed")) for name in shipped)
    return f"{len(shipped)} files, {data} of them data, py.typed included"


def check_sdist(sdist: Path, tracked: Container[str] | None = None) -> str:
    """The source archive has the files that a build needs, no caches, and nothing that git does not track."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    missing = [name for name in REQUIRED_IN_SDIST if name not in names]
    if missing:
        raise ReleaseProblem(f"missing in the sdist: {', '.join(missing)}")
    caches = [name for name in names if set(Path(name).parts) & set(CACHES) or name.endswith(".pyc")]
    if caches:
        raise ReleaseProblem(f"caches in the sdist: {_few(caches)}")
    stray = [name for name in names if tracked is not None and name != "PKG-INFO" and name not in tracked]
    if stray:
        raise ReleaseProblem(f"in the sdist, but not tracked by git: {_few(stray)}. Add, ignore or remove them")
    return f"{len(names)} files, no caches, {'all tracked by git' if tracked is not None else 'no git to compare with'}"


def tracked_files(folder: Path) -> set[str] | None:
    """The files that git tracks, or None outside of a git checkout."""
    git = shutil.which("git")
    if git is None or not (folder / ".git").exists():
        return None
    return set(_output([git, "ls-files", "-z"], cwd=folder).split("\0"))


def check_same_wheel(wheel: Path, rebuilt: Path) -> str:
    """A wheel that is built from the sdist is the wheel that is published."""
    _same(digests_of_wheel(wheel), digests_of_wheel(rebuilt), "the wheel", "the wheel built from the sdist")
    return "same files, same bytes"


def _same(one: Mapping[str, str], other: Mapping[str, str], one_name: str, other_name: str) -> None:
    problems = [
        f"{what}: {_few(sorted(names))}"
        for what, names in (
            (f"only in {one_name}", one.keys() - other.keys()),
            (f"only in {other_name}", other.keys() - one.keys()),
            ("different content", {name for name in one.keys() & other.keys() if one[name] != other[name]}),
        )
        if names
    ]
    if problems:
        raise ReleaseProblem("; ".join(problems))


def check_paths(archives: Iterable[Path], private: Iterable[str]) -> str:
    """No file names a folder of the machine that built it."""
    found = [
        f"{archive.name}: {name}"
        for archive in archives
        for name, content in _contents(archive)
        if any(path.encode() in content for path in private)
    ]
    if found:
        raise ReleaseProblem(f"a path of this machine is in {_few(found)}")
    return "no path of this machine in any file"


def machine_paths() -> list[str]:
    """Folders that exist only on this machine. Short ones, such as /root, may also occur in examples."""
    return [str(path) for path in (ROOT, Path(sys.prefix), Path.home()) if len(path.parts) > 2]


def _contents(archive: Path) -> Iterable[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist())
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            file = sdist.extractfile(member)
            if file is not None:
                yield member.name, file.read()


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# --- version and metadata ---------------------------------------------------------------------------------------


def check_version(version: str, changelog: str, tag: str | None) -> str:
    """The changelog has a section for the version; with a tag, the tag is the version and the section has a date."""
    headings = [line for line in changelog.splitlines() if line.startswith(f"## {version} ")]
    if len(headings) != 1:
        raise ReleaseProblem(
            f"CHANGELOG.md has {len(headings)} sections for {version}, expected one: `## {version} - …`"
        )
    if tag is None:
        return f"{version}, {headings[0].removeprefix('## ')!r} in the changelog"
    if tag != f"v{version}":
        raise ReleaseProblem(f"the tag is {tag}, but the version in pyproject.toml is {version}: expected v{version}")
    if not re.fullmatch(rf"## {re.escape(version)} - \d{{4}}-\d\d-\d\d", headings[0]):
        raise ReleaseProblem(f"CHANGELOG.md says {headings[0]!r}: expected a date, as in `## {version} - 2027-01-31`")
    return f"{version}, tag {tag}, dated in the changelog"


def check_metadata(wheel: Path, project: Mapping[str, Any]) -> str:
    """The metadata of the wheel is complete and says what pyproject.toml says."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    expected = {
        "Version": project["version"],
        "Summary": project["description"],
        "License-Expression": project["license"],
        "Requires-Python": project["requires-python"],
        "Description-Content-Type": "text/markdown",
    }
    wrong = [
        f"{key} is {metadata[key]!r}, expected {value!r}" for key, value in expected.items() if metadata[key] != value
    ]
    if wrong:
        raise ReleaseProblem("; ".join(wrong))
    if not str(metadata.get_payload()).strip():
        raise ReleaseProblem("the description is empty: README.md is missing")
    return (
        f"{len(metadata.get_all('Classifier', []))} classifiers, {len(metadata.get_all('Provides-Extra', []))} extras"
    )


def check_rendering(archives: Iterable[Path]) -> str:
    """The package index accepts the metadata and can render the README."""
    python = tool_environment(TOOLS, "twine", "readme-renderer[md]")
    _output([str(python), "-m", "twine", "check", "--strict", *map(str, archives)])
    program = "import sys, readme_renderer.markdown as m; sys.exit(not m.render(sys.stdin.read()))"
    _output([str(python), "-c", program], (ROOT / "README.md").read_text(encoding="utf-8"))
    return "twine check --strict passed, the README renders"


# --- building and installing ------------------------------------------------------------------------------------


def build(source: Path, folder: Path, *targets: str) -> list[Path]:
    """Build these targets ("sdist", "wheel") of a source tree into a folder."""
    options = [word for target in targets for word in ("--target", target)]
    _output([sys.executable, "-m", "hatchling", "build", *options, "--directory", str(folder)], cwd=source)
    return [next(folder.glob({"sdist": "*.tar.gz", "wheel": "*.whl"}[target])) for target in targets]


def wheel_of_sdist(sdist: Path, folder: Path) -> Path:
    """A wheel that is built from nothing but the sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build(source, folder / "rebuilt", "wheel")[0]


def check_base(archive: Path, environment: Path, version: str) -> str:
    """The engine and the commands that need no extra work with msgspec alone."""
    python = new_environment(environment)
    install(python, str(archive))
    command = str(environment / "bin" / "moonshim")
    imported = "import moonshim, sys; sys.exit(moonshim.__file__ is None or 'site-packages' not in moonshim.__file__)"
    _output([str(python), "-I", "-c", imported], cwd=environment)
    found = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    names = set(_output([str(python), "-I", "-c", found], cwd=environment).split()) - {"pip", "setuptools", "wheel"}
    if names != {"moonshim", "msgspec"}:
        raise ReleaseProblem(f"expected only moonshim and msgspec to be installed, found {', '.join(sorted(names))}")
    printed = _output([command, "--version"], cwd=environment).strip()
    if printed != f"moonshim {version}":
        raise ReleaseProblem(f"`moonshim --version` printed {printed!r}, expected 'moonshim {version}'")
    mended = _output([command, "mend", str(EXAMPLE)], cwd=environment)
    if '"finish_reason":"tool_calls"' not in mended or "<|tool_call" in mended:
        raise ReleaseProblem(f"`moonshim mend {EXAMPLE.name}` did not turn the leaked markers into tool calls")
    return "import, --version and mend work, msgspec is the only dependency"


def check_types(environment: Path) -> str:
    """A type checker finds the annotations of the installed package."""
    program = "import moonshim\nreveal_type(moonshim.Mender())\nmoonshim.Mender(1, 2, 3, no_such_option=True)\n"
    python = str(environment / "bin" / "python")
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--python-executable", python, "-c", program]
    run = subprocess.run(command, cwd=environment, capture_output=True, text=True, check=False)
    if "Mender" not in run.stdout or "no_such_option" not in run.stdout or "py.typed" in run.stdout:
        raise ReleaseProblem(f"mypy does not see the annotations of the installed package: {run.stdout.strip()}")
    return "mypy sees the annotations"


def check_gateway(archive: Path, environment: Path) -> str:
    """The gateway of the `gateway` extra starts, answers a request with a tool call, and stops on SIGTERM."""
    install(environment / "bin" / "python", f"{archive}[gateway]")
    command = [str(environment / "bin" / "moonshim"), "serve", "--demo", "--port", "0"]
    log = environment / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        name = _first_tool_call(_address(process, log))
        process.send_signal(signal.SIGTERM)
        code = process.wait(STOP_SECONDS)
    except (OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
        raise ReleaseProblem(f"`moonshim serve --demo`: {error!r}; its output: {log.read_text()[-500:]}") from None
    finally:
        process.kill()
        process.wait()
    if name != "get_weather" or code != 0:
        raise ReleaseProblem(
            f"`moonshim serve --demo` called {name!r} and exited with {code}, expected get_weather and 0"
        )
    return "serve --demo answers with a tool call and stops on SIGTERM"


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the gateway listens: it prints this when it is ready."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.05)
    raise OSError(f"no address printed within {START_SECONDS} s")


def _first_tool_call(url: str) -> str:
    tool = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    body = {
        "model": "kimi-k2.5",  # the model of the demo that leaks markers
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tools": [{"type": "function", "function": tool}],
    }
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=START_SECONDS) as response:
        message = json.load(response)["choices"][0]["message"]
    return str(message["tool_calls"][0]["function"]["name"])


def _output(command: list[str], text: str | None = None, *, cwd: Path = ROOT) -> str:
    run = subprocess.run(command, cwd=cwd, input=text, capture_output=True, text=True, check=False)
    if run.returncode:
        tail = (run.stdout + run.stderr).strip()[-1000:]
        raise ReleaseProblem(f"`{' '.join(command[:4])} …` exited with {run.returncode}: {tail}")
    return run.stdout


# --- the whole --------------------------------------------------------------------------------------------------


class Report:
    """Runs checks and prints a line for each; a check that fails does not stop the next one."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []

    def run(self, name: str, check: Callable[..., str], *arguments: object) -> bool:
        """Whether the check passed."""
        begun = time.monotonic()
        try:
            outcome = check(*arguments)
        except (ReleaseProblem, CannotSetUp) as problem:
            print(f"FAILED  {name}: {problem}", file=sys.stderr, flush=True)
            self.failed.append(name)
            return False
        print(f"ok      {name}: {outcome} ({time.monotonic() - begun:.1f} s)", flush=True)
        self.passed += 1
        return True

    def summary(self) -> int:
        """Print the verdict; the exit code."""
        total = self.passed + len(self.failed)
        if self.failed:
            print(
                f"release-check: {len(self.failed)} of {total} checks FAILED: {', '.join(self.failed)}", file=sys.stderr
            )
            return 1
        print(f"release-check: all {total} checks passed")
        return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make release-check", description="Build the package, check it and try it.")
    parser.add_argument("--tag", help="the tag of this release; must be v and the version")
    tag = parser.parse_args(arguments).tag
    # Install what users get, whatever the environment of this process pins.
    for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT"):
        os.environ.pop(name, None)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    report = Report()
    report.run("version", check_version, project["version"], (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), tag)
    with tempfile.TemporaryDirectory(prefix="release-check-") as folder:
        _check_archives(report, project, Path(folder))
    return report.summary()


def _check_archives(report: Report, project: Mapping[str, Any], folder: Path) -> None:
    archives: list[Path] = []

    def build_both() -> str:
        shutil.rmtree(DIST, ignore_errors=True)
        archives.extend(build(ROOT, DIST, "sdist", "wheel"))
        return ", ".join(f"{path.name} ({path.stat().st_size // 1024} KB)" for path in archives)

    if not report.run("build", build_both):
        return
    sdist, wheel = archives
    report.run("metadata", check_metadata, wheel, project)
    report.run("rendering", check_rendering, archives)
    report.run("wheel contents", check_wheel, wheel, digests_of_package(PACKAGE))
    report.run("sdist contents", lambda: check_sdist(sdist, tracked_files(ROOT)))
    report.run("paths", check_paths, archives, machine_paths())
    report.run("sdist builds the wheel", lambda: check_same_wheel(wheel, wheel_of_sdist(sdist, folder / "source")))
    for kind, archive in (("wheel", wheel), ("sdist", sdist)):
        environment = folder / kind
        if report.run(f"{kind} alone", check_base, archive, environment, project["version"]):
            report.run(f"{kind} typed", check_types, environment)
            report.run(f"{kind}[gateway]", check_gateway, archive, environment)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
