"""Conversations survive: rendered and parsed in each dialect, and crossed between any two of them (law 6)."""

from __future__ import annotations

import re
from itertools import permutations
from typing import Any, Final

import pytest
from hypothesis import given, settings

from moonshim.engine.dialects.protocol import Dialect
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.ids.spelling import anthropic_id
from moonshim.engine.prepare import MESSAGE_DIALECTS, translate_messages
from moonshim.engine.signing import Signer
from moonshim.engine.values.conversation import Message, Request
from tests.engine.request.nasty.requests import NASTY
from tests.laws.conversations import conversations, requests
from tests.laws.said import CANNOT, MESSAGES_CANNOT, Spell, said, said_by_messages, sayable
from tests.support.profiles import examples

SEALER: Final = Signer(b"test")
PAIRS: Final = list(permutations(CLIENT_DIALECTS, 2))
MESSAGE_PAIRS: Final = list(permutations(MESSAGE_DIALECTS, 2))


def parsed(dialect: Dialect, body: Any) -> Request:
    return dialect.parse_request(body, SEALER)[0]


def asked_in(name: str, messages: list[Any]) -> tuple[Message, ...]:
    """The canonical messages of a dialect's own."""
    if name in CLIENT_DIALECTS:
        return tuple(dialect_named(name).parse_messages(messages))
    from moonshim.engine.dialects.vercel_ai import parse_messages

    return tuple(parse_messages(messages))


def told_in(name: str, messages: tuple[Message, ...]) -> list[Any]:
    if name in CLIENT_DIALECTS:
        return dialect_named(name).render_messages(messages)
    from moonshim.engine.dialects.vercel_ai import render_messages

    return render_messages(messages)


LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]+")


def spelling(*names: str) -> Spell:
    """Identifiers stay what they are, unless Messages has to write them: it knows no dots and colons."""
    if "anthropic" not in names:
        return lambda wire_id: wire_id
    return lambda wire_id: wire_id if wire_id is None or LEGAL.fullmatch(wire_id) else anthropic_id(wire_id)


def as_request(messages: tuple[Message, ...]) -> Request:
    return Request(model="m", messages=messages)


@pytest.mark.parametrize("name", CLIENT_DIALECTS)
@settings(max_examples=examples(60))
@given(request=requests())
def test_what_a_dialect_can_say_is_read_back(name: str, request: Request) -> None:
    dialect = dialect_named(name)
    body, _ = dialect.render_request(request)
    again = parsed(dialect, body)
    assert said(sayable(again, CANNOT[name])) == said(sayable(request, CANNOT[name]))


@pytest.mark.parametrize("name", CLIENT_DIALECTS)
@settings(max_examples=examples(60))
@given(request=requests())
def test_a_body_that_is_parsed_and_rendered_is_the_same_body(name: str, request: Request) -> None:
    dialect = dialect_named(name)
    body, _ = dialect.render_request(request)
    again, changes = dialect.render_request(parsed(dialect, body))
    assert again == body
    assert not [change for change in changes if change.rule != "cannot_say"]


@pytest.mark.parametrize("name", CLIENT_DIALECTS)
@settings(max_examples=examples(40))
@given(request=requests())
def test_what_a_dialect_cannot_say_is_reported(name: str, request: Request) -> None:
    told = [change.detail for change in dialect_named(name).render_request(request)[1]]
    for what, loss in CANNOT[name].items():
        left = loss.left(request)
        is_lost, request = said(left) != said(request), left
        assert not (is_lost and loss.told) or any(loss.told in one for one in told), what


@pytest.mark.parametrize(("here", "there"), PAIRS)
@settings(max_examples=examples(40))
@given(request=requests())
def test_a_crossing_and_back_keeps_what_both_can_say(here: str, there: str, request: Request) -> None:
    home, abroad = dialect_named(here), dialect_named(there)
    body, _ = home.render_request(request)
    left = parsed(home, body)
    crossed, _ = abroad.render_request(left)
    back, _ = home.render_request(parsed(abroad, crossed))
    losses = (CANNOT[here], CANNOT[there], CANNOT[here])
    ids = spelling(here, there)
    assert said(sayable(parsed(home, back), *losses), ids=ids) == said(sayable(left, *losses), ids=ids)


@pytest.mark.parametrize(("here", "there"), MESSAGE_PAIRS)
@settings(max_examples=examples(60))
@given(messages=conversations())
def test_messages_that_cross_and_return_keep_what_both_can_say(
    here: str, there: str, messages: tuple[Message, ...]
) -> None:
    left = told_in(here, messages)
    back = translate_messages(translate_messages(left, from_=here, to=there), from_=there, to=here)
    losses = (MESSAGES_CANNOT[here], MESSAGES_CANNOT[there], MESSAGES_CANNOT[here])
    before, after = (sayable(as_request(asked_in(here, one)), *losses).messages for one in (left, back))
    ids = spelling(here, there)
    assert said_by_messages(after, ids=ids) == said_by_messages(before, ids=ids)


@pytest.mark.parametrize("name", MESSAGE_DIALECTS)
@settings(max_examples=examples(40))
@given(messages=conversations())
def test_messages_that_are_parsed_and_rendered_are_the_same(name: str, messages: tuple[Message, ...]) -> None:
    told = told_in(name, messages)
    assert told_in(name, asked_in(name, told)) == told


@pytest.mark.parametrize("there", CLIENT_DIALECTS)
def test_what_real_clients_send_can_be_told_and_read_in_every_dialect(there: str) -> None:
    """Broken histories and odd fields included, and before any host has had its say."""
    abroad = dialect_named(there)
    for asked in NASTY:
        crossed, _ = abroad.render_request(parsed(dialect_named(asked.dialect), asked.body))
        assert abroad.render_request(parsed(abroad, crossed))[0] == crossed, asked.name
