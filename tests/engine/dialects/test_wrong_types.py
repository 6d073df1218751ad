"""A request with a value of a wrong type is refused in every dialect, and the error names the field."""

from __future__ import annotations

import pytest

from moonshim.engine.prepare import read_request
from moonshim.errors import InvalidInput
from tests.engine.dialects.wrong_types import COMPLETE, SHORT, VALID, WRONG, Wrong, replaced, wrong_values


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_the_error_names_the_field_and_both_types(wrong: Wrong) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_request(SHORT[wrong.dialect] | wrong.fields, dialect=wrong.dialect)
    assert (refused.value.field, str(refused.value)) == (wrong.field, wrong.field + wrong.says)


@pytest.mark.parametrize(("dialect", "fields"), VALID.values(), ids=VALID)
def test_null_unknown_fields_and_what_clients_send_are_accepted(dialect: str, fields: dict[str, object]) -> None:
    read_request(SHORT[dialect] | fields, dialect=dialect)


@pytest.mark.parametrize("dialect", COMPLETE)
def test_every_known_field_is_checked(dialect: str) -> None:
    read_request(COMPLETE[dialect], dialect=dialect)
    accepted, misplaced = list[str](), list[str]()
    for path, value in wrong_values(dialect):
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
        try:
            read_request(replaced(COMPLETE[dialect], path, value), dialect=dialect)
        except InvalidInput as error:
            if error.field is None or not where.startswith(error.field.partition(".")[0].partition("[")[0]):
                misplaced.append(f"{where} = {value!r}: {error.field}: {error}")
        else:
            accepted.append(f"{where} = {value!r}")
    assert (accepted, misplaced) == ([], [])
