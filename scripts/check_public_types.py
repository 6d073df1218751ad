"""List the names in the public modules whose types are incomplete, for users with a type checker.

`basedpyright --verifytypes` checks every module. Only the names that the public modules export count here, and the
members of these classes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PUBLIC: Final = (
    "moonshim",
    "moonshim.types",
    "moonshim.agent",
    "moonshim.agent.toolbox",
    "moonshim.integrations",
    "moonshim.simulator",
    "moonshim.testing",
)


def main() -> int:
    report = verify()
    symbols = {symbol["name"]: symbol for symbol in report["typeCompleteness"]["symbols"]}
    names = sorted(set(public_symbols()))
    missing = [name for name in names if name not in symbols]
    wrong = [
        symbol
        for name, symbol in symbols.items()
        if not (symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"])
        and any(name == public or name.startswith(f"{public}.") for public in names)
        and not any(part.startswith("_") for part in name.split("."))
    ]
    for symbol in wrong:
        print(symbol["name"])
        for one in symbol["diagnostics"]:
            start = one["range"]["start"]
            print(f"  {Path(one['file']).relative_to(ROOT)}:{start['line'] + 1}: {one['message'].splitlines()[0]}")
    for name in missing:
        print(f"{name}: not found by the type checker")
    print(f"public types: {len(names)} names in {len(PUBLIC)} modules, {len(wrong) + len(missing)} incomplete")
    return 1 if wrong or missing else 0


def verify() -> dict[str, Any]:
    """The type checker's report on the whole package."""
    paths = [str(ROOT / "src"), sysconfig.get_path("purelib")]
    command = [sys.executable, "-m", "basedpyright", "--verifytypes", "moonshim", "--ignoreexternal", "--outputjson"]
    with tempfile.TemporaryDirectory() as folder:  # no configuration, and no import from the current folder
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if not run.stdout.startswith("{"):
        raise SystemExit(run.stdout + run.stderr)
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def public_symbols() -> Iterator[str]:
    """The full names of everything that the public modules export, where they are defined."""
    for name in PUBLIC:
        module = importlib.import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{value.__module__}.{value.__qualname__}"


if __name__ == "__main__":
    sys.exit(main())
