"""A schema in Moonshot's flavour is one that Moonshot takes, and it allows all that the given one allows."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moonshim.errors import CannotExpress
from moonshim.hosts.schema_flavour import moonshot_schema
from tests.hosts.plain_schema import allows
from tests.hosts.schemas import NAMES, root_schemas, values
from tests.strict_kimi.schema_rules import check_schema


@given(root_schemas)
def test_moonshot_takes_every_schema_that_could_be_rewritten(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    try:
        out, changes = moonshot_schema(schema, tool="t")
    except CannotExpress:
        return
    finally:
        assert schema == before
    assert check_schema(out) is None
    assert (out is schema) == (changes == [])


@given(root_schemas, st.lists(st.dictionaries(st.sampled_from(NAMES), values, max_size=3), min_size=1, max_size=8))
def test_what_the_given_schema_allows_the_new_one_allows_too(schema: dict[str, Any], arguments: list[Any]) -> None:
    try:
        out, _ = moonshot_schema(schema, tool="t")
    except CannotExpress:
        return
    for value in arguments:
        assert allows(out, value) or not allows(schema, value)


@given(root_schemas)
def test_what_was_rewritten_needs_nothing_more(schema: dict[str, Any]) -> None:
    try:
        out, _ = moonshot_schema(schema, tool="t")
        again, changes = moonshot_schema(out, tool="t")
    except CannotExpress:
        return
    assert again is out, changes
