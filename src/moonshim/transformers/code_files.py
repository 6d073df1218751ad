"""The path of a Python file -> its module, from its current content."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["module_of"]


def module_of(path: Path, kind: str, source: bytes | None = None) -> ModuleType:
    """Run the file, and return its module; exceptions are passed on. `kind` is a part of the module's name.

    With `source`, exactly that is run, even if the file has changed since it was read.
    """
    source = path.read_bytes() if source is None else source
    name = f"moonshim_{kind}_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    # Dataclasses and the like look for their module there.
    sys.modules[name] = module
    try:
        # Not through a loader: it may use stale byte code for a file that was changed within the same second.
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module
