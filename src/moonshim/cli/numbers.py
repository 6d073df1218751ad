"""The text of an option -> a number within its bounds, or the error that argparse shows."""

from __future__ import annotations

import argparse

__all__ = ["integer", "number", "port"]


def port(text: str) -> int:
    return integer(text, "a port", 0, 65_535)


def integer(text: str, what: str, least: int, most: int) -> int:
    """
    >>> integer("8", "how many workers there are", 1, 256)
    8
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{what} is a number from {least} to {most}, not {text[:40]!r}")
    return int(text)


def number(text: str, what: str, least: float, most: float) -> float:
    """
    >>> number("0.1", "a share", 0, 1)
    0.1
    """
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:  # NaN is within no bounds
        raise argparse.ArgumentTypeError(f"{what} is a number from {least:g} to {most:g}, not {text[:40]!r}")
    return value
