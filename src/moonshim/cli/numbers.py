"""The string given to an option -> a number within its limits, or the error that argparse shows."""

from __future__ import annotations

import argparse

__all__ = ["integer", "number", "port"]


def port(text: str) -> int:
    return integer(text, 0, 65_535)


def integer(text: str, least: int, most: int) -> int:
    """
    >>> integer("8", 1, 256)
    8
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"expected an integer from {least} to {most}, got {text[:40]!r}")
    return int(text)


def number(text: str, least: float, most: float) -> float:
    """
    >>> number("0.1", 0, 1)
    0.1
    """
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:  # NaN is within no limits
        raise argparse.ArgumentTypeError(f"expected a number from {least:.15g} to {most:.15g}, got {text[:40]!r}")
    return value
