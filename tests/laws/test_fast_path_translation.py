"""The fast path of answers that are written anew: it is really taken, and tells what the slow path tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moonshim import Mender
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.plan import Plan, plan_for
from moonshim.engine.response.fast_path import TranslatingFastPath
from tests.laws.scripts import Call, Cut, Run, Script, Setting, pieces
from tests.laws.strategies import byte_splits, cuts, scripts
from tests.laws.test_clean_messages import frames as written
from tests.laws.test_clean_messages import streams
from tests.laws.test_fast_path import TYPICAL, _must_not, _native, _ordinary, _scraps, counted

CLIENTS: Final = ("anthropic", "openai_responses", "openai_chat")
Told = tuple[str, Any]


def plan_of(setting: Setting, client: str, upstream: str) -> Plan:
    plan = plan_for(**setting.told)
    plan.client, plan.upstream = dialect_named(client), dialect_named(upstream)
    plan.reply = ResponseContext(model="asked-for")
    return plan


def events(data: bytes) -> list[Told]:
    """The events of a stream: their names, and what they say."""
    out: list[Told] = []
    for event in data.decode().split("\n\n")[:-1]:
        name, _, payload = event.rpartition("data: ")
        out.append((name, payload if payload == "[DONE]" else json.loads(payload)))
    return out


class Telling:
    """All that a mender told of these pieces, piece by piece, and all that it knows in the end."""

    def __init__(self, plan: Plan, data: Sequence[bytes]) -> None:
        mender = Mender(plan=plan)
        self.steps = [events(out) for out in [*map(mender.feed, data), mender.flush()]]
        self.known = (mender.message, mender.ending, mender.repairs, mender.usage, mender.normalized_usage)

    @property
    def events(self) -> list[Told]:
        return [event for step in self.steps for event in step]


def long_way(plan: Plan, data: Sequence[bytes]) -> Telling:
    """The same, by a mender that never takes the fast path."""

    def never(self: TranslatingFastPath, *, is_idle: bool) -> None:
        self.template = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslatingFastPath, "settle", never)
        patch.setattr(TranslatingFastPath, "take", _must_not)
        return Telling(plan, data)


def same(plan: Plan, data: Sequence[bytes]) -> Telling:
    """Both ways tell the same, at every step."""
    short, long = Telling(plan, data), long_way(plan, data)
    assert short.steps == long.steps
    assert short.known == long.known
    return short


def as_messages(script: Script, cut: Cut) -> list[bytes]:
    """The first choice of a script, as a Messages host would tell it."""
    block: dict[str, Any]
    message = {"id": "msg_7", "type": "message", "role": "assistant", "model": "m", "content": []}
    out: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, part in enumerate(part for part in script.parts if part.choice == 0):
        if isinstance(part, Run):
            kind = "text" if part.fields == ("content",) else "thinking"
            block, name, field, text = {"type": kind, kind: ""}, f"{kind}_delta", kind, part.text
        else:
            block = {"type": "tool_use", "id": part.id or "toolu_1", "name": part.name, "input": {}}
            name, field, text = "input_json_delta", "partial_json", part.arguments
        out.append({"type": "content_block_start", "index": index, "content_block": block})
        out += [
            {"type": "content_block_delta", "index": index, "delta": {"type": name, field: piece}}
            for piece in cut(text)
        ]
        if index % 3 == 1:
            out.append({"type": "ping"})
        out.append({"type": "content_block_stop", "index": index})
    if script.finish is not None:
        out.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}})
        out.append({"type": "message_stop"})
    return written(out, compact=False, ascii_only=False)


HOSTS: Final = {"openai_chat": lambda script, cut: script.frames(cut), "anthropic": as_messages}
PAIRS: Final = [("openai_chat", "anthropic"), ("openai_chat", "openai_responses")] + [
    ("anthropic", client) for client in CLIENTS
]


@pytest.mark.parametrize(("upstream", "client"), PAIRS)
@pytest.mark.parametrize("name", TYPICAL)
def test_typical_streams_go_the_short_way(
    name: str, upstream: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, part = TYPICAL[name]
    script = Script((part,), finish="stop", setting=Setting(model))
    frames, plan = HOSTS[upstream](script, pieces([4])), plan_of(script.setting, client, upstream)
    taken = [0]
    with monkeypatch.context() as patch:
        patch.setattr(TranslatingFastPath, "take", counted(TranslatingFastPath.take, taken))
        Telling(plan, frames)
    assert taken[0] >= 0.5 * len(frames), f"{taken[0]} of {len(frames)}"
    same(plan, frames)


@given(scripts, cuts, st.sampled_from(CLIENTS[:2]))
def test_both_ways_tell_the_same_of_a_chat_host(script: Script, cut: Cut, client: str) -> None:
    same(plan_of(script.setting, client, "openai_chat"), script.frames(cut))


@given(scripts, cuts, st.sampled_from(CLIENTS))
def test_both_ways_tell_the_same_of_a_messages_host(script: Script, cut: Cut, client: str) -> None:
    same(plan_of(script.setting, client, "anthropic"), as_messages(script, cut))


@given(scripts, cuts, st.sampled_from(PAIRS), st.data())
def test_they_do_for_any_cut_of_the_bytes(script: Script, cut: Cut, pair: tuple[str, str], draw: st.DataObject) -> None:
    upstream, client = pair
    frames, plan = HOSTS[upstream](script, cut), plan_of(script.setting, client, upstream)
    split = same(plan, draw.draw(byte_splits(b"".join(frames))))
    whole = Telling(plan, frames)
    assert (split.events, split.known) == (whole.events, whole.known)


@given(streams(), st.booleans(), st.booleans(), st.sampled_from(CLIENTS))
def test_they_do_for_whatever_the_protocol_of_messages_allows(
    payloads: list[dict[str, Any]], compact: bool, ascii_only: bool, client: str
) -> None:
    plan = plan_of(Setting(tools="unknown"), client, "anthropic")
    same(plan, written(payloads, compact=compact, ascii_only=ascii_only))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from((*_scraps, *_scraps, *_ordinary)), max_size=14),
    st.sampled_from(("kimi-k2.5", "kimi-k3", "kimi-for-coding")),
    st.sampled_from(("all", "unknown", "none")),
    st.sampled_from(("content", "reasoning_content", "reasoning")),
    st.sampled_from(((10_000,), (1,), (2,), (1, 3))),
    st.sampled_from(PAIRS),
)
def test_they_do_where_almost_markers_are_dense(
    scraps: list[str], model: str, tools: str, field: str, sizes: tuple[int, ...], pair: tuple[str, str]
) -> None:
    upstream, client = pair
    parts = tuple(Run(text, (field,)) for text in ("Once", " more ", *scraps, " end"))
    script = Script(parts, setting=Setting(model, tools))
    same(plan_of(script.setting, client, upstream), HOSTS[upstream](script, pieces(sizes)))


@given(
    st.lists(st.sampled_from(_native), min_size=1, max_size=14),
    st.sampled_from((0, 1, "0", None)),
    st.sampled_from(("kimi-k2.5", "gpt-4o")),
    st.sampled_from(PAIRS),
)
def test_they_do_for_the_arguments_of_native_calls(
    scraps: list[str], index: int | str | None, model: str, pair: tuple[str, str]
) -> None:
    upstream, client = pair
    call = Call("search_files", "".join(scraps), "functions.search_files:0", index)
    script = Script((call,), setting=Setting(model))
    frames = HOSTS[upstream](script, pieces([len(scrap) for scrap in scraps]))
    same(plan_of(script.setting, client, upstream), frames)
