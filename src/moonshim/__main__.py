"""`python -m moonshim` is the command `moonshim`."""

from moonshim.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
