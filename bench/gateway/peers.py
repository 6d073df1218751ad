"""Other gateways for the benchmark: each is installed in `.bench-peers/` in its newest version, and started.

Delete that folder to get newer versions.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench.gateway.processes import CannotStart, Served, free_port, served_by
from bench.gateway.traffic import MODEL
from scripts.environment import ROOT, CannotSetUp, install, new_environment

__all__ = ["PEERS", "Peer"]

FOLDER: Final = ROOT / ".bench-peers"
_INSTALL_SECONDS: Final = 900


class Peer(Struct, frozen=True, kw_only=True):
    """A gateway of somebody else. `start` gets its folder and the port of the host."""

    name: str
    package: str
    dialects: frozenset[str]
    start: Callable[[Path, int], AbstractContextManager[Served]]
    on_pypi: bool = False
    overrides: dict[str, str] = {}
    """Versions of npm packages below it that differ from what npm would choose."""
    model: str = MODEL
    """How a request names the model."""
    headers: Callable[[int], dict[str, str]] = lambda _: {}
    """From the port of the host."""

    def install(self) -> tuple[Path, str]:
        """The folder of the installed package, and its version. Raises `CannotStart`."""
        folder = FOLDER / self.name
        if not (folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            if self.on_pypi:
                _install_from_pypi(folder, self.package)
            else:
                _install_from_npm(folder, self.package, self.overrides)
            (folder / "installed").touch()
        return folder, _python_version(folder, self.package) if self.on_pypi else _npm_version(folder, self.package)


def _install_from_pypi(folder: Path, package: str) -> None:
    try:
        install(new_environment(folder), package)
    except CannotSetUp as error:
        raise CannotStart(str(error)) from error


def _install_from_npm(folder: Path, package: str, overrides: dict[str, str]) -> None:
    npm = shutil.which("npm")
    if npm is None or _node() is None:
        raise CannotStart("Node and npm are not installed")
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"private": True, "overrides": overrides}))
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier", "--ignore-scripts"]
    print(f"set-up: installing {package} into {folder.relative_to(ROOT)}", flush=True)
    try:
        command = [npm, "install", *options, package]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"npm install {package}: {error}") from error
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise CannotStart(f"npm install {package}: {' / '.join(last)}")


def _npm_version(folder: Path, package: str) -> str:
    version: str = json.loads((folder / "node_modules" / package / "package.json").read_text())["version"]
    return version


def _python_version(folder: Path, package: str) -> str:
    name = package.split("[")[0]
    code = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
    command = [str(folder / "bin" / "python"), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _node() -> str | None:
    return shutil.which("node")


@contextmanager
def _node_program(
    script: Path, *arguments: str, port: int, settings: Path, environment: dict[str, str] | None = None
) -> Iterator[Served]:
    node = _node()
    if node is None:
        raise CannotStart("Node is not installed")
    with served_by(
        [node, str(script), *arguments], port, settings, environment={"NODE_ENV": "production", **(environment or {})}
    ) as served:
        yield served


# --- one start function for each --------------------------------------------------------------------------------


@contextmanager
def _litellm(folder: Path, upstream: int) -> Iterator[Served]:
    model = {"model": f"hosted_vllm/{MODEL}", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    settings = {"model_list": [{"model_name": name, "litellm_params": model} for name in (MODEL, "renamed")]}
    with tempfile.TemporaryDirectory() as temporary:
        config, port = Path(temporary) / "config.yaml", free_port()
        config.write_text(json.dumps(settings))  # JSON is YAML
        options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
        command = [str(folder / "bin" / "litellm"), *options, "--telemetry", "False"]
        environment = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # without network access it would wait for a table of prices
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            "LITELLM_MODE": "PRODUCTION",
            "LITELLM_LOG": "ERROR",
        }
        with served_by(command, port, config, environment=environment) as served:
            yield served


def _providers(upstream: int) -> list[dict[str, Any]]:
    """As claude-code-router and its server library are configured."""
    url = f"http://127.0.0.1:{upstream}/v1/chat/completions"
    return [{"name": "bench", "api_base_url": url, "api_key": "none", "models": [MODEL]}]


@contextmanager
def _llms(folder: Path, upstream: int) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as temporary:
        config, port, script = Path(temporary) / "config.json", free_port(), folder / "serve.cjs"
        values = {"providers": _providers(upstream), "HOST": "127.0.0.1", "PORT": str(port), "LOG": False}
        config.write_text(json.dumps(values))
        script.write_text(
            "const { default: Server } = require('@musistudio/llms');\n"
            "const initialConfig = JSON.parse(require('fs').readFileSync(process.argv[2]));\n"
            "new Server({ initialConfig, useJsonFile: false, logger: false }).start();\n"
        )
        with _node_program(script, str(config), port=port, settings=config) as served:
            yield served


@contextmanager
def _claude_code_router(folder: Path, upstream: int) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as temporary:
        config, port = Path(temporary) / ".claude-code-router" / "config.json", free_port()
        config.parent.mkdir()
        values = {"LOG": False, "HOST": "127.0.0.1", "PORT": port, "NON_INTERACTIVE_MODE": True}
        routes = {"default": f"bench,{MODEL}"}
        config.write_text(json.dumps({**values, "Providers": _providers(upstream), "Router": routes}))
        script = folder / "node_modules" / "@musistudio" / "claude-code-router" / "dist" / "cli.js"
        environment = {"HOME": temporary, "SERVICE_PORT": str(port)}
        with _node_program(script, "start", port=port, settings=config, environment=environment) as served:
            yield served


@contextmanager
def _portkey(folder: Path, upstream: int) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as temporary:
        port = free_port()
        script = folder / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
        options = ["--headless", f"--port={port}"]
        environment = {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1", "PORT": str(port)}
        with _node_program(
            script, *options, port=port, settings=Path(temporary) / "portkey", environment=environment
        ) as served:
            yield served


def _portkey_headers(upstream: int) -> dict[str, str]:
    url = f"http://127.0.0.1:{upstream}/v1"
    return {"x-portkey-provider": "openai", "x-portkey-custom-host": url, "authorization": "Bearer none"}


PEERS: Final = (
    Peer(
        name="llms",
        package="@musistudio/llms",
        dialects=frozenset({"chat", "messages"}),
        start=_llms,
        model=f"bench,{MODEL}",
    ),
    Peer(
        name="claude-code-router",
        package="@musistudio/claude-code-router",
        dialects=frozenset({"messages"}),
        start=_claude_code_router,
        model=f"bench,{MODEL}",
    ),
    Peer(
        name="portkey",
        package="@portkey-ai/gateway",
        dialects=frozenset({"chat"}),
        start=_portkey,
        # With 1.14 and later, every stream of Portkey 1.15.2 fails: "TypeError: immutable".
        overrides={"@hono/node-server": "1.13.8"},
        headers=_portkey_headers,
    ),
    Peer(
        name="litellm",
        package="litellm[proxy]",
        dialects=frozenset({"chat", "messages"}),
        start=_litellm,
        on_pypi=True,
        headers=lambda _: {"authorization": "Bearer none"},
    ),
)
