"""The gateway on what is configured, and on the demo when nothing is: `make serve`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from moonshim.cli import main
from moonshim.config import config_from_environment, look_for_config

if __name__ == "__main__":
    arguments = sys.argv[1:]
    named = "--config" in arguments or "--demo" in arguments
    found = None if named else look_for_config(None, os.environ, Path.cwd())
    if not named and found is None and config_from_environment(os.environ) is None:
        print("Nothing is configured, so this serves the demo: it answers with invented text.", file=sys.stderr)
        command = Path(sys.executable).with_name("moonshim")
        shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
        print(
            f"{shown} config example > moonshim.toml gives you a file to begin with, {shown} trust lets it be used.",
            file=sys.stderr,
        )
        arguments = ["--demo", *arguments]
    raise SystemExit(main(["serve", *arguments]))
