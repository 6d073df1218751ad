"""Gateway keys: who is let in, who is not, and what each is told."""

from __future__ import annotations

import hmac
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from moonshim.config import GatewayKey
from moonshim.errors import Problem, Refused
from moonshim.gateway.inbound import auth
from moonshim.gateway.inbound.auth import KeyRing, client_key, digest_of, is_digest, new_key

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def made(name: str, expires: datetime | None = None) -> tuple[str, GatewayKey]:
    key, digest = new_key()
    return key, GatewayKey(name=name, digest=digest, expires=expires)


def ring(*keys: GatewayKey) -> KeyRing:
    return KeyRing(keys, clock=NOW.timestamp)


def refusal(keys: KeyRing, headers: dict[str, str]) -> Problem:
    with pytest.raises(Refused) as refused:
        keys.identify(headers)
    assert (refused.value.problem.status, refused.value.problem.kind) == (401, "authentication")
    return refused.value.problem


ALICE, ALICES = made("alice")
BOB, BOBS = made("bob")

ACCEPTED: dict[str, dict[str, str]] = {
    "OpenAI's way": {"authorization": f"Bearer {ALICE}"},
    "in lower case": {"authorization": f"bearer {ALICE}"},
    "with spaces": {"authorization": f"  Bearer   {ALICE} "},
    "Anthropic's way": {"x-api-key": ALICE},
    "Azure's way": {"api-key": ALICE},
    "beside a key for somebody else": {"x-api-key": "sk-ant-other", "authorization": f"Bearer {ALICE}"},
    "the other way round": {"x-api-key": ALICE, "authorization": "Bearer sk-other"},
    "beside another scheme": {"x-api-key": ALICE, "authorization": "Basic YTpi"},
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_key_is_known_however_clients_send_it(name: str) -> None:
    assert ring(BOBS, ALICES).identify(ACCEPTED[name]) == ALICES


WRONG: dict[str, dict[str, str]] = {
    "another key": {"x-api-key": new_key()[0]},
    "the beginning of a key": {"x-api-key": ALICE[:-1]},
    "more than a key": {"x-api-key": ALICE + "A"},
    "a key in other letters": {"x-api-key": ALICE.swapcase()},
    "the digest from the configuration": {"x-api-key": ALICES.digest},
    "the digits of the digest": {"x-api-key": ALICES.digest.removeprefix("sha256:")},
    "the name": {"authorization": "Bearer alice"},
    "two keys in one": {"authorization": f"Bearer {ALICE}, Bearer {BOB}"},
    "no letters at all": {"x-api-key": "\udc80\xff"},
    "a megabyte": {"x-api-key": "x" * 1_000_000},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_guessed_or_stolen_looking_key_is_refused(name: str) -> None:
    problem = refusal(ring(ALICES, BOBS), WRONG[name])
    assert "Invalid gateway key" in problem.message
    for secret in (*WRONG[name].values(), ALICES.digest):
        assert secret not in problem.message


MISSING: dict[str, dict[str, str]] = {
    "nothing": {},
    "an empty key": {"x-api-key": "", "authorization": "Bearer "},
    "another scheme": {"authorization": "Basic YTpi"},
    "a key where none is looked for": {"cookie": f"key={ALICE}", "x-goog-api-key": ALICE},
}


@pytest.mark.parametrize("name", MISSING)
def test_a_request_without_a_key_is_refused_and_told_how_to_send_one(name: str) -> None:
    assert "Authorization: Bearer" in refusal(ring(ALICES), MISSING[name]).message


def test_without_configured_keys_nobody_needs_one() -> None:
    assert ring().identify({}) is None
    assert ring().identify({"x-api-key": "whatever"}) is None
    assert not ring()
    assert ring(ALICES)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=9))], ids=["UTC", "Tokyo"])
def test_an_expired_key_is_refused_and_says_so(zone: timezone) -> None:
    key, kept = made("old", expires=NOW.astimezone(zone))
    problem = refusal(ring(ALICES, kept), {"x-api-key": key})
    assert problem.code == "key_expired"
    assert "'old' expired on 2026-11-15" in problem.message
    key, kept = made("fresh", expires=(NOW + timedelta(seconds=1)).astimezone(zone))
    assert ring(kept).identify({"x-api-key": key}) == kept


def test_an_expired_key_does_not_shadow_a_good_one_beside_it() -> None:
    key, kept = made("old", expires=NOW - timedelta(days=1))
    assert ring(kept, ALICES).identify({"x-api-key": ALICE, "authorization": f"Bearer {key}"}) == ALICES


@pytest.mark.parametrize("place", [0, 1, 2, None], ids=["first", "second", "last", "none"])
def test_the_time_of_a_comparison_tells_nothing_since_every_key_is_compared_to_its_end(
    place: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def counted(known: bytes, shown: bytes) -> bool:
        compared.append(known)
        return compare(known, shown)

    made_keys = [made(name) for name in "abc"]
    monkeypatch.setattr(auth, "compare_digest", counted)
    keys = ring(*(kept for _, kept in made_keys))
    if place is None:
        refusal(keys, {"x-api-key": "msk_no"})
    else:
        assert keys.identify({"x-api-key": made_keys[place][0]}) == made_keys[place][1]
    assert compared == [kept.digest.encode() for _, kept in made_keys]


def test_a_key_has_256_bits_and_no_two_are_the_same() -> None:
    keys = {new_key()[0] for _ in range(1000)}
    assert len(keys) == 1000
    assert all(re.fullmatch(r"msk_[A-Za-z0-9_-]{43}", key) for key in keys)


def test_a_digest_is_what_sha256_says() -> None:
    assert digest_of("abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert is_digest(digest_of("abc"))
    assert not is_digest(new_key()[0])


def test_a_digest_in_capitals_or_with_nonsense_in_it_is_no_fault() -> None:
    shouted = GatewayKey(name="a", digest="SHA256:" + ALICES.digest.partition(":")[2].upper())
    assert ring(shouted).identify({"x-api-key": ALICE}) == shouted
    refusal(ring(GatewayKey(name="a", digest="größe")), {"x-api-key": ALICE})


def test_the_clients_own_key_is_read_for_hosts_that_want_it() -> None:
    assert client_key({"authorization": "Bearer sk-mine"}) == "sk-mine"
    assert client_key({"x-api-key": "sk-ant-mine"}) == "sk-ant-mine"
    assert client_key({"cookie": "key=sk-mine"}) is None
