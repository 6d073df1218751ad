"""Every vector: what is reported to a Chat client is reported to clients of the other dialects, streamed and whole.

What is not yet is in `unreported_repairs.json`, by reason, and known to fail: a case that passes has to be taken out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, Literal, TypeAlias

import pytest

from moonshim import Mender, mend_response
from moonshim.engine.dialects.registry import CLIENT_DIALECTS
from tests.support.looped import looped
from tests.support.vector_checks import Run, plan_of
from tests.support.vector_files import Vector, fields_of, files

Delivery: TypeAlias = Literal["stream", "whole"]
Case: TypeAlias = tuple[str, str, Delivery]
"""`file/vector`, the client's dialect, and whether the response streams."""

DELIVERIES: Final[tuple[Delivery, ...]] = ("stream", "whole")
KNOWN_FILE: Final = Path(__file__).with_name("unreported_repairs.json")
VECTORS: Final = {f"{file}/{vector.name}": vector for file, group in files().items() for vector in group}


@cache
def known() -> dict[Case, str]:
    """The cases that are known to fail, with the reason."""
    return {
        (name, client, delivery): f"{', '.join(group['rules'])}: {group['reason']}"
        for group in json.loads(KNOWN_FILE.read_text("utf-8"))
        for name, deliveries in group["vectors"].items()
        for client, delivery in product(group["clients"], deliveries)
    }


def unreported(vector: Vector, client: str, delivery: Delivery) -> Iterator[tuple[str, set[str]]]:
    """The rules that a Chat client hears of and this one does not, by the field that the text is sent in."""
    for field in fields_of(vector):
        if delivery == "stream":
            stream = vector.stream(field, 3)
            chat = Run(vector, [stream]).mender.repairs
            mender = Mender(plan=plan_of(vector, client), framing=vector.framing)
            mender.feed(stream)
            mender.flush()
            repairs = mender.repairs
        else:
            body = vector.body(field)
            if body is None:
                continue
            chat = mend_response(body, **vector.arguments()).repairs
            repairs = mend_response(body, plan=plan_of(vector, client)).repairs
        wanted = {repair.rule for repair in chat} | set(vector.expect.repairs)
        if missing := wanted - {repair.rule for repair in repairs}:
            yield field, missing


@pytest.mark.parametrize("name", VECTORS)
@looped("client", CLIENT_DIALECTS)
@looped("delivery", DELIVERIES)
def test_every_client_hears_of_what_was_repaired(name: str, client: str, delivery: Delivery) -> None:
    if (name, client, delivery) not in known():
        assert dict(unreported(VECTORS[name], client, delivery)) == {}


@pytest.mark.parametrize(
    ("name", "client", "delivery"),
    [pytest.param(*case, marks=pytest.mark.xfail(reason=reason, strict=True)) for case, reason in known().items()],
)
def test_repairs_that_are_not_reported_yet(name: str, client: str, delivery: Delivery) -> None:
    assert dict(unreported(VECTORS[name], client, delivery)) == {}
