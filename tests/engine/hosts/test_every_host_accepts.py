"""Whatever a client sends, every host and generation gets a request that it accepts, and nothing is lost on the way.

The judge is `moonshim.simulator.rules`, which knows nothing of the code that prepares requests.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.table import HOSTS
from moonshim.engine.prepare import Prepared, prepare_request
from moonshim.engine.values.conversation import Change
from moonshim.errors import InvalidInput
from moonshim.simulator.rules.request_rules import check_chat, check_messages
from tests.engine.hosts.told import TELLERS, Turn, turns
from tests.engine.request.nasty.case import Json, Nasty, Refused
from tests.engine.request.nasty.requests import NASTY, REFUSED
from tests.engine.request.nasty.words import arguments_said, names_said, parts_of_body, words_said
from tests.support.profiles import examples

MODELS: Final = {
    "k2": "kimi-k2-0905-preview",
    "k2-thinking": "kimi-k2-thinking",
    "k2.5": "kimi-k2.5",
    "k2.6": "kimi-k2.6",
    "k2.7": "kimi-k2.7-code",
    "k3": "kimi-k3",
    "k3.1": "kimi-k3.1-pro",
}
UPSTREAMS: Final = [
    *((host, "openai_chat") for host in HOSTS if host != "moonshot-anthropic"),
    *((host, "anthropic") for host in ("moonshot-anthropic", "kimi-coding", "openrouter", "vllm", "generic")),
]
# One that does not think, one of K2 that does, and K3: what is done to messages and tools is different for these.
FEW: Final = ("k2", "k2.6", "k3")


def prepared(asked: Nasty | Refused, host: str, upstream: str, generation: str) -> Prepared:
    return prepare_request(asked.body, dialect=asked.dialect, upstream=upstream, host=host, model=MODELS[generation])


@cache
def shown(host: str, upstream: str, generation: str) -> list[tuple[Nasty, Json, list[Change]]]:
    """The requests that this model can be shown, with what is sent for them: those with pictures are not for all."""
    sees = "image" in profile_for(host=host, model=MODELS[generation], upstream=upstream).media
    fitting = [asked for asked in NASTY if host in asked.hosts and (sees or not asked.sees)]
    made = [prepared(asked, host, upstream, generation) for asked in fitting]
    return [(asked, one.body, one.changes) for asked, one in zip(fitting, made, strict=True)]


def restored(body: Json) -> Json:
    """With one joiner less in special tokens: each time that a request is prepared adds one, so that texts which had
    joiners of their own can be told apart."""
    text = re.sub("([<\\[])\u2060", r"\1", json.dumps(body, ensure_ascii=False))
    found: Json = json.loads(text)
    return found


def as_said(faults: list[tuple[str, object]]) -> str:
    return "\n".join(f"{name}: {fault}" for name, fault in faults)


@pytest.mark.parametrize("generation", MODELS)
@pytest.mark.parametrize(("host", "upstream"), UPSTREAMS)
def test_the_host_accepts_what_becomes_of_every_request(host: str, upstream: str, generation: str) -> None:
    check = check_chat if upstream == "openai_chat" else check_messages
    faults: list[tuple[str, object]] = []
    for asked, body, _ in shown(host, upstream, generation):
        faults += [(asked.name, fault) for fault in check(body, generation=generation, host=host)]
    assert not faults, as_said(faults)


@pytest.mark.parametrize("dialect", TELLERS)
@settings(max_examples=examples(60))
@given(conversation=turns, at=st.sampled_from(UPSTREAMS), generation=st.sampled_from([*MODELS]))
def test_any_conversation_is_accepted_and_needs_nothing_more(
    dialect: str, conversation: list[Turn], at: tuple[str, str], generation: str
) -> None:
    host, upstream = at
    made = prepared(Nasty("generated", dialect, TELLERS[dialect](conversation)), host, upstream, generation)
    check = check_chat if upstream == "openai_chat" else check_messages
    assert check(made.body, generation=generation, host=host) == []
    again = prepared(Nasty("again", upstream, made.body), host, upstream, generation)
    assert made.body in (again.body, restored(again.body))


@pytest.mark.parametrize("generation", FEW)
@pytest.mark.parametrize(("host", "upstream"), UPSTREAMS)
def test_what_was_prepared_needs_nothing_more(host: str, upstream: str, generation: str) -> None:
    faults: list[tuple[str, object]] = []
    for asked, body, changes in shown(host, upstream, generation):
        again = prepared(Nasty(asked.name, upstream, body), host, upstream, generation)
        if body not in (again.body, restored(again.body)):
            faults.append((asked.name, [change for change in again.changes if change not in changes]))
    assert not faults, as_said(faults)


@pytest.mark.parametrize("generation", FEW)
@pytest.mark.parametrize(("host", "upstream"), UPSTREAMS)
def test_nothing_is_lost_unless_a_change_says_so(host: str, upstream: str, generation: str) -> None:
    faults: list[tuple[str, object]] = []
    for asked, body, changes in shown(host, upstream, generation):
        texts, names, given = parts_of_body(restored(body), upstream)
        told = "\n".join(change.detail for change in changes if change.rule.startswith("tool_"))
        faults += [(asked.name, word) for word in words_said(asked) if not any(word in text for text in texts)]
        faults += [(asked.name, arguments) for arguments in arguments_said(asked) if arguments not in given]
        for name in names_said(asked):
            if name not in told and not any(name in known for known in names):
                faults.append((asked.name, name))
    assert not faults, as_said(faults)


@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
def test_the_request_that_was_passed_stays_as_it_is(upstream: str) -> None:
    for asked in NASTY:
        before = json.dumps(asked.body)
        prepared(asked, "moonshot", upstream, "k2.6")
        assert json.dumps(asked.body) == before, asked.name


@pytest.mark.parametrize("host", [host for host, upstream in UPSTREAMS if upstream == "openai_chat"])
def test_pictures_of_tools_stand_where_chat_has_a_place_for_them(host: str) -> None:
    seen = 0
    for asked, body, _ in shown(host, "openai_chat", "k3"):
        for message in body["messages"] if asked.sees else ():
            listed = message["content"] if isinstance(message.get("content"), list) else []
            kinds = {part["type"] for part in listed}
            assert kinds <= {"text", "image_url"}, asked.name
            assert message["role"] == "user" or "image_url" not in kinds, asked.name
            seen += "image_url" in kinds
    assert seen >= 5


@pytest.mark.parametrize("asked", [asked for asked in NASTY if asked.sees], ids=lambda asked: asked.name)
def test_a_model_without_eyes_says_which_message_has_the_picture(asked: Nasty) -> None:
    with pytest.raises(InvalidInput) as caught:
        prepared(asked, "moonshot", "openai_chat", "k2")
    assert caught.value.status == 400
    assert str(caught.value.field).startswith(asked.sees)


@pytest.mark.parametrize("asked", REFUSED, ids=lambda asked: asked.name)
def test_what_nobody_can_make_right_is_refused_with_its_field(asked: Refused) -> None:
    for host in asked.hosts:
        for generation in FEW:
            with pytest.raises(InvalidInput) as caught:
                prepared(asked, host, "openai_chat", generation)
            assert caught.value.status == 400
            assert str(caught.value.field).startswith(asked.field), (host, generation, caught.value)


def test_names_are_sentences_of_their_own() -> None:
    names = [asked.name for asked in NASTY] + [asked.name for asked in REFUSED]
    assert len(set(names)) == len(names)


def test_the_table_has_every_dialect_and_enough_of_each() -> None:
    counts = Counter(asked.dialect for asked in NASTY)
    assert all(counts[dialect] >= 12 for dialect in TELLERS)
