"""A JSON Schema and a value -> what is wrong with the value: `jsonschema`, with exact decimal steps."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

__all__ = ["faults_of"]


def faults_of(value: Any, schema: Any) -> list[str]:
    """Every rule that the value breaks, with its place."""
    return [f"{error.json_path}: {error.message}" for error in _Judge(schema).iter_errors(value)]


def _multiple_of(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    # `jsonschema` divides floats, for which 0.3 is no multiple of 0.1.
    if validator.is_type(value, "number") and (Fraction(str(value)) / Fraction(str(step))).denominator != 1:
        yield ValidationError(f"{value!r} is not a multiple of {step!r}")


_Judge: Any = extend(Draft202012Validator, {"multipleOf": _multiple_of})
