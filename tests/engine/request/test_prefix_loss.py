"""When a lost prefix is reported, and when it is not: the token counts of a host decide, and the requests before."""

from __future__ import annotations

from typing import Any, Final

import pytest

from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.prefix import digest_prompt
from moonshim.engine.request.prefix_loss import SentPrompt, explain_loss, find_previous, requested_ttl
from tests.engine.request.test_prefix import BASE, SECRET, chat

Json = dict[str, Any]
K3: Final = profile_for(model="kimi-k3", host="moonshot")
K25: Final = profile_for(model="kimi-k2.5", host="moonshot")
NEXT: Final = chat("one", "two", "three", "four", "five", "six", "seven")
TIMED: Final = chat("one", "two", "three", "four", "five", "six", "seven", system="It is 10:31.")
EDITED: Final = chat("one", "x", "three", "four", "five", "six", "seven")
OTHER_WAY: Final = chat("one", "two", "x", "y", "z")
DROPPED: Final = "no change found: the host dropped it"


def sent(body: Json, tokens: int = 10_000, *, at: int = 0, cached: bool = True, ttl: int | None = None) -> SentPrompt:
    return SentPrompt(digest_prompt(body, SECRET), at, tokens, ttl, cached)


def lost(
    after: Json,
    cached: int,
    *,
    before: SentPrompt | None = None,
    tokens: int = 12_000,
    at: int = 60,
    profile: HostProfile = K3,
) -> str | None:
    return explain_loss(before or sent(BASE), sent(after, tokens, at=at), cached, after, profile)


def test_a_conversation_that_is_read_from_the_cache_is_no_loss() -> None:
    for cached in (9_984, 9_728, 9_000):
        assert lost(NEXT, cached) is None


def test_a_change_is_named_however_much_was_still_read() -> None:
    for cached in (0, 256, 4_000, 8_000):
        assert lost(EDITED, cached) == "messages[2] (assistant) changed"
    assert lost(TIMED, 0) == "messages[0] (system) changed"


def test_a_change_that_costs_nothing_is_not_reported() -> None:
    assert lost(EDITED, 9_500) is None


def test_a_change_is_named_where_the_host_could_never_cache() -> None:
    assert lost(TIMED, 0, before=sent(BASE, cached=False)) == "messages[0] (system) changed"


def test_a_host_that_never_cached_is_not_blamed() -> None:
    assert lost(NEXT, 0) == DROPPED
    assert lost(NEXT, 0, before=sent(BASE, cached=False)) is None
    assert lost(NEXT, 0, before=sent(BASE, cached=False), at=3_000) is None


def test_a_host_is_not_blamed_for_what_is_not_compared() -> None:
    words = [str(number) for number in range(4_200)]
    before, after = chat(*words), chat(*words[:-1], "edited", "and more")
    assert lost(after, 0, before=sent(before)) == "no change in the first 4,096 messages; later ones are not compared"


def test_short_prompts_are_not_reported() -> None:
    assert lost(TIMED, 0, before=sent(BASE, 1_000)) is None
    assert lost(TIMED, 0, tokens=1_000) is None
    assert lost(TIMED, 0, before=sent(BASE, 1_100)) is not None


def test_a_conversation_taken_back_to_an_earlier_message_is_no_loss() -> None:
    assert lost(OTHER_WAY, 3_000) is None
    assert lost(chat("one", "two", "three"), 4_900, tokens=5_000) is None


TIMES: Final[dict[str, tuple[int, int | None, str | None]]] = {
    "within five minutes": (299, None, DROPPED),
    "longer than usual": (720, None, "TTL: 12 min since the previous request; hosts usually keep a prefix for 5m"),
    "longer than asked for": (720, 300, "TTL: 12 min since the previous request, longer than 5m"),
    "within the hour that was asked for": (720, 3600, DROPPED),
    "longer than an hour": (4_000, 3600, "TTL: 66 min since the previous request, longer than 1h"),
    "a day": (90_000, 3600, "TTL: 25 h since the previous request, longer than 1h"),
}


@pytest.mark.parametrize(("at", "ttl", "words"), TIMES.values(), ids=TIMES.keys())
def test_a_long_pause_is_the_reason(at: int, ttl: int | None, words: str | None) -> None:
    assert lost(NEXT, 0, before=sent(BASE, ttl=ttl), at=at) == words


def test_a_change_after_a_long_pause_names_both_if_nothing_was_read() -> None:
    before = sent(BASE, ttl=300)
    pause = "TTL: 12 min since the previous request, longer than 5m"
    assert lost(EDITED, 0, before=before, at=720) == f"messages[2] (assistant) changed; {pause}"
    assert lost(EDITED, 2_000, before=before, at=720) == "messages[2] (assistant) changed"


def test_reasoning_that_a_model_forgets_after_a_user_message_is_no_loss() -> None:
    assert lost(NEXT, 4_000, profile=K3) == DROPPED
    assert lost(NEXT, 4_000, profile=K25) is None
    assert lost(NEXT, 0, profile=K25) == DROPPED
    assert lost(NEXT | {"thinking": {"type": "enabled", "keep": "all"}}, 4_000, profile=K25) == "`thinking` changed"


def test_the_previous_request_is_the_one_with_the_longest_history_in_common() -> None:
    others = {
        "old": sent(chat("one", "two", "three"), at=1),
        "last": sent(BASE, at=2),
        "branch": sent(OTHER_WAY, at=3),
        "subagent": sent(chat("Find it.", system="You search.", tools=("read",)), at=4),
    }
    assert find_previous(digest_prompt(NEXT, SECRET), others) == "last"
    assert find_previous(digest_prompt(chat("hello"), SECRET), others) is None
    assert find_previous(digest_prompt(NEXT, SECRET), {}) is None


def test_the_ttl_of_a_request_is_the_longest_that_it_names() -> None:
    short, long = ({"type": "ephemeral", "ttl": ttl} for ttl in ("5m", "1h"))
    block = {"type": "text", "text": "hi"}
    assert requested_ttl({"prompt_cache_options": {"ttl": "5m"}}) == 300
    assert requested_ttl({"system": [block | {"cache_control": long}], "messages": []}) == 3600
    messages = [{"role": "user", "content": [block | {"cache_control": {"type": "ephemeral"}}]}]
    assert requested_ttl({"messages": messages}) == 300
    assert requested_ttl({"messages": messages, "tools": [{"name": "t", "cache_control": short | long}]}) == 3600
    odd_options: list[Any] = [None, "x", [], {"ttl": 5}, {"ttl": "2d"}]
    for odd in odd_options:
        assert requested_ttl({"prompt_cache_options": odd, "messages": "x", "tools": [1], "system": 5}) is None
