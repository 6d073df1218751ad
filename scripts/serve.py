"""`make serve`: runs the gateway with your configuration, or with the demo if there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from moonshim.cli import main
from moonshim.config import ConfigError, config_from_environment, load_config, look_for_config


def reason_for_demo() -> str | None:
    """Why the demo runs instead; None if there is a provider, or if `moonshim serve` should report a problem."""
    try:
        found = look_for_config(None, os.environ, Path.cwd())
        if config_from_environment(os.environ) is not None:
            return None
        if found is None:
            return "No configuration found"
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
            f"{reason}. Starting the demo: made-up responses, only for this machine, without keys.",
            file=sys.stderr,
        )
        command = Path(sys.executable).with_name("moonshim")
        shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
        print(
            f"To configure it, run `{shown} init`."
            if reason.startswith("No configuration")
            else f"Set an API key (such as MOONSHOT_API_KEY), or add [[providers]] (see `{shown} config example`).",
            file=sys.stderr,
        )
        arguments = ["--demo", *arguments]
    code = main(["serve", *arguments])
    if code == 1:
        print('Pass options with ARGS: make serve ARGS="--port 9000"', file=sys.stderr)
    raise SystemExit(code)
