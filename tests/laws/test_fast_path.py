"""The fast path: it is really taken, and what leaves by it is what leaves by the slow path, whatever the dialects."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moonshim import Mender
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.plan import Plan, plan_for
from moonshim.engine.response.fast_path import FastPath
from tests.laws.scripts import Call, Cut, Run, Script, Setting, pieces
from tests.laws.strategies import byte_splits, cuts, scripts
from tests.laws.test_clean_messages import frames as written
from tests.laws.test_clean_messages import streams

_ARGUMENTS = '{"path": "src/a_long_name_of_a_file.py", "text": "two words\\nand \\u00e9 more"}'
_SECTION = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    f"{_ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
)
_WORDS = "It is a fine day to read a long text with many words and few surprises in it. "
TYPICAL: dict[str, tuple[str, Run | Call]] = {
    "plain text": ("kimi-k2.5", Run(_WORDS)),
    "reasoning": ("kimi-k2.5", Run(_WORDS, ("reasoning_content",))),
    "text of K3": ("kimi-k3", Run(_WORDS)),
    "a call in markers": ("kimi-k2.5", Run(_WORDS + _SECTION)),
    "a native call": ("kimi-k2.5", Call("read_file", _ARGUMENTS, "functions.read_file:0")),
    "another model": ("gpt-4o", Run(_WORDS)),
}


# -- routes -----------------------------------------------------------------------------------------------------------


class Route(NamedTuple):
    """The dialects of a host and of its client; None: a recording of the host is mended, without a client."""

    upstream: str
    client: str | None

    def plan(self, setting: Setting) -> Plan:
        plan = plan_for(**setting.told)
        if self.client is not None:
            plan.client, plan.upstream = dialect_named(self.client), dialect_named(self.upstream)
            plan.reply = ResponseContext(model="asked-for")
        return plan

    def frames(self, script: Script, cut: Cut) -> list[bytes]:
        return script.frames(cut) if self.upstream == "openai_chat" else as_messages(script, cut)

    @property
    def is_exact(self) -> bool:
        """Whether chunks pass through: then the bytes are compared, and else what they say."""
        return self.client is None or self.client == self.upstream


CHAT_ROUTES: Final = (Route("openai_chat", None), Route("openai_chat", "openai_chat"))
TRANSLATED_ROUTES: Final = (Route("openai_chat", "anthropic"), Route("openai_chat", "openai_responses"))
MESSAGES_ROUTES: Final = tuple(
    Route("anthropic", client) for client in ("anthropic", "openai_responses", "openai_chat")
)
ROUTES: Final = CHAT_ROUTES + TRANSLATED_ROUTES + MESSAGES_ROUTES
GROUPS: Final = {"Chat": CHAT_ROUTES, "Chat, translated": TRANSLATED_ROUTES, "Messages": MESSAGES_ROUTES}


def as_messages(script: Script, cut: Cut) -> list[bytes]:
    """The first choice of a script, as a Messages host would send it."""
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


# -- both paths -------------------------------------------------------------------------------------------------------


def events(data: bytes) -> list[tuple[str, Any]]:
    """The events of a stream: their names, and what they contain."""
    out: list[tuple[str, Any]] = []
    for event in data.decode().split("\n\n")[:-1]:
        name, _, payload = event.rpartition("data: ")
        out.append((name, payload if payload == "[DONE]" else json.loads(payload)))
    return out


class Reading:
    """All that a mender sent for these pieces, piece by piece, and all that it knows in the end."""

    def __init__(self, plan: Plan, data: Sequence[bytes], *, fast_path: bool = True, **more: Any) -> None:
        mender = Mender(plan=plan, fast_path=fast_path, **more)
        self.sent = [*map(mender.feed, data), mender.flush()]
        messages = [mender.message_of(choice) for choice in range(3)]
        self.repairs = mender.repairs
        self.known = (messages, mender.ending, self.repairs, mender.usage, mender.normalized_usage)

    @property
    def data(self) -> bytes:
        return b"".join(self.sent)

    @property
    def steps(self) -> list[list[tuple[str, Any]]]:
        return [events(data) for data in self.sent]


def same(plan: Plan, data: Sequence[bytes], *, exact: bool, **more: Any) -> Reading:
    """Both paths send the same at every step, and know the same in the end."""
    fast, slow = Reading(plan, data, **more), Reading(plan, data, fast_path=False, **more)
    if exact:
        assert fast.sent == slow.sent
    else:
        assert fast.steps == slow.steps
    assert fast.known == slow.known
    return fast


def same_on(route: Route, script: Script, cut: Cut) -> None:
    same(route.plan(script.setting), route.frames(script, cut), exact=route.is_exact)


def counted(take: Callable[..., Any], taken: list[int]) -> Callable[..., Any]:
    """`FastPath.take`, counting the frames that it took."""

    def counting(self: FastPath, *arguments: Any) -> Any:
        result = take(self, *arguments)
        taken[0] += result is not None
        return result

    return counting


def taken(run: Callable[[], object]) -> int:
    """How many frames take the fast path while this runs."""
    count = [0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastPath, "take", counted(FastPath.take, count))
        run()
    return count[0]


# -- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES, ids=str)
@pytest.mark.parametrize("name", TYPICAL)
def test_typical_streams_take_the_fast_path(name: str, route: Route) -> None:
    model, part = TYPICAL[name]
    script = Script((part,), finish="stop", setting=Setting(model))
    plan, frames = route.plan(script.setting), route.frames(script, pieces([4]))
    share = taken(lambda: Reading(plan, frames)) / len(frames)
    assert share >= (0.6 if route.upstream == route.client or route.client is None else 0.5)
    same_on(route, script, pieces([4]))


@pytest.mark.parametrize("group", GROUPS)
@given(data=st.data(), script=scripts, cut=cuts)
def test_both_paths_give_the_same(group: str, data: st.DataObject, script: Script, cut: Cut) -> None:
    same_on(data.draw(st.sampled_from(GROUPS[group])), script, cut)


@given(scripts, cuts, st.sampled_from(ROUTES), st.data())
def test_they_do_for_any_cut_of_the_bytes(script: Script, cut: Cut, route: Route, draw: st.DataObject) -> None:
    frames, plan = route.frames(script, cut), route.plan(script.setting)
    split = same(plan, draw.draw(byte_splits(b"".join(frames))), exact=route.is_exact)
    whole = Reading(plan, frames)
    assert (events(split.data), split.known) == (events(whole.data), whole.known)


@given(streams(), st.booleans(), st.booleans(), st.sampled_from(MESSAGES_ROUTES))
def test_they_do_for_whatever_the_protocol_of_messages_allows(
    payloads: list[dict[str, Any]], compact: bool, ascii_only: bool, route: Route
) -> None:
    frames = written(payloads, compact=compact, ascii_only=ascii_only)
    same(route.plan(Setting(tools="unknown")), frames, exact=False)


_scraps = (
    "<",
    "<|",
    "<|t",
    "|",
    "ool_call_begin|>",
    "<|tool_call_begin|>",
    "</think>",
    "<think>",
    "<|open|>",
    "open|>",
)
_ordinary = (
    "a",
    " ",
    "re",
    "ad",
    "read",
    ":",
    "0",
    "functions.",
    "functions",
    ".",
    "search_files:12",
    "é",
    '"',
    "\\",
    "\n",
)


@pytest.mark.parametrize("group", GROUPS)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    scraps=st.lists(st.sampled_from((*_scraps, *_scraps, *_ordinary)), max_size=14),
    model=st.sampled_from(("kimi-k2.5", "kimi-k3", "kimi-for-coding")),
    tools=st.sampled_from(("all", "unknown", "none")),
    field=st.sampled_from(("content", "reasoning_content", "reasoning")),
    sizes=st.sampled_from(((10_000,), (1,), (2,), (1, 3))),
)
def test_they_do_where_almost_markers_are_dense(
    group: str, data: st.DataObject, scraps: list[str], model: str, tools: str, field: str, sizes: tuple[int, ...]
) -> None:
    parts = tuple(Run(text, (field,)) for text in ("Once", " more ", *scraps, " end"))
    script = Script(parts, setting=Setting(model, tools))
    same_on(data.draw(st.sampled_from(GROUPS[group])), script, pieces(sizes))


_native = (
    "{",
    "}",
    "{}",
    '{"',
    'a": "',
    "b",
    "\\",
    "n",
    "u00",
    "e9",
    "\\ud83d",
    "\\ude00",
    '"',
    '"}',
    " ",
    "\n",
    "null",
    "1",
)


@pytest.mark.parametrize("group", GROUPS)
@given(
    data=st.data(),
    scraps=st.lists(st.sampled_from(_native), min_size=1, max_size=14),
    index=st.sampled_from((0, 1, "0", None)),
    model=st.sampled_from(("kimi-k2.5", "gpt-4o")),
)
def test_they_do_for_the_arguments_of_native_calls(
    group: str, data: st.DataObject, scraps: list[str], index: int | str | None, model: str
) -> None:
    call = Call("search_files", "".join(scraps), "functions.search_files:0", index)
    script = Script((call,), setting=Setting(model))
    sizes = [len(scrap) for scrap in scraps]
    same_on(data.draw(st.sampled_from(GROUPS[group])), script, pieces(sizes))


@pytest.mark.parametrize("route", ROUTES, ids=str)
@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "a", "lines": [1, 2, {"b": "c", "d": null}], "e": true}',
        '{"path": "a", "lines": [1, 2,], }',
        '{"path": "a",,}',
        '{"path": "a", }"',
        '{"path": "a", "b": None, \'c\': \'d\'}',
        '{"path": "a",\n\n\n    "b": ]',
        '{"path": "a", "b": ',
    ],
)
def test_they_do_for_commas_that_wait(arguments: str, route: Route) -> None:
    script = Script((Run("Look."), Call("read", arguments, "functions.read:0")), "tool_calls")
    for size in (1, 2, 3, 5, 40):
        same_on(route, script, pieces([size]))
