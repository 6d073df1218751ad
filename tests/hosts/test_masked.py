"""Keys in any text are masked, however it is written; a quick look may never miss what the patterns find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.hosts.problem_body import _SECRETS, masked

SECRETS = [
    "Bearer 0123456789abcdef",
    "bEARER\t0123456789abcdef",
    "Basic dXNlcjpwYXNz",
    "Ba\u017fic dXNlcjpwYXNz",
    "TOKEN abcdefgh12345",
    "To\u212aen abcdefgh12345",
    "sk-abcdefgh",
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
    assert secret not in masked(around.format(secret))


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
    assert masked(text) == long_way
