"""`python -m moonshim` is the command `moonshim`."""

import os
import sys


def _leave_current_folder() -> None:
    """Remove the current folder, which `python -m` adds to the module path, and whose files may not be trustworthy.

    The `moonshim` command does not add it. This comes before all other imports, so it uses none.
    """
    try:
        if sys.path and not sys.flags.safe_path and os.path.samefile(sys.path[0], "."):  # noqa: PTH121
            del sys.path[0]
    except OSError:  # that folder is gone, and was not added
        return


if __name__ == "__main__":
    _leave_current_folder()

    from moonshim.cli import main

    raise SystemExit(main())
