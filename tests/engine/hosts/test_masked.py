"""Keys in any text are masked, however it is written; a quick look may never miss what the patterns find."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.hosts.errors.body import _SECRETS, mask_bytes, mask_secrets

SECRETS = [
    "Bearer 0123456789abcdef",
    "bEARER\t0123456789abcdef",
    "Basic dXNlcjpwYXNz",
    "Ba\u017fic dXNlcjpwYXNz",
    "TOKEN abcdefgh12345",
    "To\u212aen abcdefgh12345",
    "sk-abcdefgh",
    "msk_abcdefgh12345ABCDEFGH12345abcdefgh12345",
    "gsk_abcdefgh12345",
    "fw_abcdefgh12345",
    "hf_abcdefgh12345",
    "xai-abcdefgh12345",
    "nvapi-abcdefgh12345",
    "tgp_v1_abcdefgh12345",
    "eyJhbGciOiJIUzI1.eyJzdWIi",
    "api_key=abcdefgh12345",
    "APIKEY: abcdefgh12345",
    'X-Api-Key": "abcdefgh12345',
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "401: {} is wrong", "caf\u00e9 {} (\u4e2d\u6587)", 'a\n"{}"\n'])
def test_a_key_is_masked_in_every_spelling_that_its_pattern_knows(secret: str, around: str) -> None:
    assert secret not in mask_secrets(around.format(secret))


@given(
    st.lists(
        st.sampled_from(
            [*SECRETS, "key", "token", "Be", "arer ", "sk", "-", "eyJ", "\u017f", "\u212a", " ", "plain words"]
        )
        | st.text(max_size=6)
    ).map("".join)
)
def test_the_quick_look_changes_nothing(text: str) -> None:
    long_way = text
    for pattern, instead in _SECRETS:
        long_way = pattern.sub(instead, long_way)
    assert mask_secrets(text) == long_way


OURS = "pa/ss wörd+1"


@pytest.mark.parametrize(
    "spelt",
    [
        OURS,
        f"Bearer {OURS}",
        quote(OURS, safe=""),
        b64encode(OURS.encode()).decode(),
        b64encode(f"{OURS}:".encode()).decode(),
    ],
)
def test_a_secret_that_looks_like_none_is_masked_however_it_is_spelt(spelt: str) -> None:
    told = mask_secrets(f"who is ({spelt})?", [OURS])
    assert spelt not in told
    assert OURS not in told
    assert told.startswith("who is (")
    assert told.endswith("…)?")


def test_of_a_header_the_key_and_the_password_alone_are_masked_too() -> None:
    account = b64encode(b"robot:open-sesame").decode()
    assert mask_secrets("open-sesame is wrong", [f"Basic {account}"]) == "… is wrong"
    assert mask_secrets("hunter22 is wrong", ["Token hunter22"]) == "… is wrong"


def test_a_secret_that_is_part_of_another_leaves_nothing_of_it() -> None:
    assert mask_secrets("abcdefghij", ["cdefgh", "abcdefghij"]) == "…"


def test_a_short_value_is_a_word_like_any_other() -> None:
    assert mask_secrets("this is true", ["true", ""]) == "this is true"


def test_frames_of_an_error_lose_the_key_and_stay_json() -> None:
    key = 'pl"ain\\key-0123'
    frame = {"type": "response.failed", "error": {"message": f"bad key {key}, given as {quote(key)}", "code": key}}
    clean = mask_bytes(msgspec.json.encode(frame), [key, "response.failed", "message"])
    told = {"type": "response.failed", "error": {"message": "bad key …, given as …", "code": "…"}}
    assert msgspec.json.decode(clean) == told
