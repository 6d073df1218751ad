"""A schema that Moonshot refuses, and its message -> whether our validator says so, and whether we can help it.

The validator of the tests has to refuse it with that message. The rewriting has to turn it into one that
the validator takes, or to say that it cannot.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from conformance.checked import Checked
from conformance.replies import Json
from moonshim.engine.request.schema.flavour import moonshot_schema
from moonshim.errors import CannotExpress
from moonshim.simulator.rules.schema_rules import SchemaLimits, check_schema

__all__ = ["area_of", "check", "key_of"]

_LIMITS: Final = SchemaLimits(depth=5)
"""The source's own tests allow this much depth; what answers requests allows more."""


def key_of(row: Json) -> str:
    """Group and digest: the schemas have no names."""
    return f"{row['group']}/{hashlib.sha256(row['schema'].encode()).hexdigest()[:8]}"


def area_of(row: Json) -> str:
    group: str = row["group"]
    return group


def check(row: Json) -> Checked:
    message = check_schema(row["schema"], limits=_LIMITS) or "accepted"
    refused = row["expect"] if row["expect"] in message else message
    return Checked(
        {"message": refused, "fault after rewriting": _rewritten(row["schema"])},
        {"message": row["expect"], "fault after rewriting": None},
    )


def _rewritten(text: str) -> str | None:
    try:
        schema = json.loads(text)
    except ValueError:
        return None
    try:
        return check_schema(moonshot_schema(schema, tool="t")[0])
    except CannotExpress:
        return None
