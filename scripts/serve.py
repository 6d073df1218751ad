"""The gateway on what is configured, and on the demo when nothing is: `make serve`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from moonshim.cli import main
from moonshim.config import ConfigError, config_from_environment, load_config, look_for_config


def reason_for_demo() -> str | None:
    """Why there is no host to serve; None: there is one, or `moonshim serve` says what is wrong."""
    try:
        found = look_for_config(None, os.environ, Path.cwd())
        if config_from_environment(os.environ) is not None:
            return None
        if found is None:
            return "Nothing is configured"
        if found.needs_trust or load_config(found.path, None).providers:
            return None
        return f"{found.path} has no provider yet"
    except ConfigError:
        return None


if __name__ == "__main__":
    arguments = sys.argv[1:]
    reason = None if "--config" in arguments or "--demo" in arguments else reason_for_demo()
    if reason is not None:
        print(
            f"{reason}, so this serves the demo: it answers with invented text, to this machine only and without keys.",
            file=sys.stderr,
        )
        command = Path(sys.executable).with_name("moonshim")
        shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
        print(
            f"{shown} config example > moonshim.toml gives you a file to begin with, {shown} trust lets it be used."
            if reason.startswith("Nothing")
            else f"Set a host's key (such as MOONSHOT_API_KEY), or add [[providers]] as {shown} config example shows.",
            file=sys.stderr,
        )
        arguments = ["--demo", *arguments]
    code = main(["serve", *arguments])
    if code == 1:
        print('Options go into ARGS: make serve ARGS="--port 9000"', file=sys.stderr)
    raise SystemExit(code)
