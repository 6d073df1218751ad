"""Conversations in memory and in files: what is saved is loaded, by this version and by later ones."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.agent.history import History, HistoryError, HistoryFile, HistoryInUse, read_history
from moonshim.engine.dialects.openai_chat.messages import parse_messages, render_messages
from moonshim.engine.values.conversation import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from moonshim.errors import InvalidInput

VECTOR = Path(__file__).parent / "conversation_v1.jsonl"
CHAT_VECTOR = Path(__file__).parent / "conversation_extras.jsonl"
"""Chat messages with all that Chat can hold beside the parts, as a version wrote them that held it in plain objects."""
CHAT_MESSAGES: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief.", "name": "boss"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "https://e.org/a.png", "x": 1}, "y": 2},
            {"type": "file", "file": {"file_id": "f1"}},
            None,
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "reasoning": "Hm.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "ls", "arguments": {"p": 1}}},
            {"id": "b", "function": {"name": "cat", "arguments": "{}"}, "extra": True},
            7,
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}], "name": "ls"},
    {"role": "tool", "content": "y"},
    {"role": "assistant", "content": "", "refusal": "No.", "annotations": []},
    {"role": "assistant", "content": "So", "partial": True},
]


def human(text: str = "Hi") -> Message:
    return Message("user", (Text(text),))


def ai(text: str = "Hello") -> Message:
    return Message("assistant", (Reasoning("Hm."), Text(text)))


CALL = ToolCall("hist_tool_1", "ls", "{}")
RESULT = Message("tool", (ToolResult("hist_tool_1", "ls", (Text("a"),)),))

# -- in memory ---------------------------------------------------------------------------------------------------


def test_undo_takes_the_last_turn_back() -> None:
    history = History([human(), ai(), human("And?"), Message("assistant", (CALL,)), RESULT, ai()])
    assert history.undo() == 4
    assert history.messages == (human(), ai())
    assert history.undo() == 2
    assert history.undo() == 0


def test_undoing_an_answer_leaves_the_words_that_it_answers() -> None:
    history = History([human(), ai(), human("And?"), ai()])
    assert history.undo_answer() == 1
    assert history.messages[-1] == human("And?")
    assert history.undo_answer() == 0


def test_calls_at_the_end_without_a_result_are_known() -> None:
    both = Message("assistant", (CALL, ToolCall("hist_tool_2", "ls", "{}")))
    assert History([human(), both, RESULT]).unanswered == (both.parts[1],)
    assert History([human(), both]).unanswered == both.parts
    assert History([human(), both, RESULT, human()]).unanswered == ()
    assert History().unanswered == ()


# -- in a file ---------------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "one.jsonl"
    with HistoryFile.create(path, {"title": "A talk"}) as history:
        history.switched("kimi-k2.5", "moonshot")
        for message in (human(), ai(), human("And?"), Message("assistant", (Reasoning(""), CALL)), RESULT, ai("So.")):
            history.add(message)
        history.switched("gpt-5", "openai", "hermes")
        kept, id = history.messages, history.id
    with HistoryFile.open(path) as again:
        assert again.messages == kept
        assert (again.model, again.provider, again.tool_format, again.id) == ("gpt-5", "openai", "hermes", id)
        assert again.about["title"] == "A talk"
        assert again.troubles == ()
        again.undo()
        again.add(human("Else?"))
    assert read_history(path).messages == (*kept[:2], human("Else?"))


WITH_FILE = 1
"""The message with a file by its id, which is a part of it now."""


def test_what_chat_holds_beside_the_parts_is_loaded_from_earlier_files() -> None:
    loaded, parsed = read_history(CHAT_VECTOR).messages, tuple(parse_messages(CHAT_MESSAGES))
    others = [place for place in range(len(parsed)) if place != WITH_FILE]
    assert [loaded[place] for place in others] == [parsed[place] for place in others]
    assert render_messages(loaded) == CHAT_MESSAGES


def test_what_chat_holds_beside_the_parts_is_written_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        for message in parse_messages(CHAT_MESSAGES):
            history.add(message)
    assert render_messages(read_history(path).messages) == CHAT_MESSAGES
    written = [json.loads(line)["message"] for line in path.read_text().splitlines()[1:]]
    earlier = [json.loads(line)["message"] for line in CHAT_VECTOR.read_text().splitlines()[1:]]
    del written[WITH_FILE], earlier[WITH_FILE]
    assert written == earlier


def test_extras_of_no_known_dialect_stay_as_they_are(tmp_path: Path) -> None:
    extras = {"elsewhere": {"x": 1}, "openai_chat": {"fields": "none"}}
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        history.add(Message("user", (Text("Hi"),), extras))
    (loaded,) = read_history(path).messages
    assert loaded.extras == extras
    assert render_messages([loaded]) == [{"role": "user", "content": "Hi"}]


def test_undo_and_clear_are_lines_like_others(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        history.add(human("Never mind"))
        history.clear()
        history.add(human())
        history.add(ai())
        history.undo()
        assert history.messages == ()
    text = path.read_text()
    assert "Never mind" in text
    assert [sorted(json.loads(line).keys() - {"at"}) for line in text.splitlines()[1:]] == [
        ["message"],
        ["clear"],
        ["message"],
        ["message"],
        ["undo"],
    ]
    assert read_history(path).messages == ()


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "one.jsonl"
    with HistoryFile.create(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_each_message_is_in_the_file_when_add_returns(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        for number in range(3):
            history.add(human(str(number)))
            assert len(read_history(path).messages) == number + 1


def test_a_conversation_in_which_nothing_was_said_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        history.switched("kimi-k2.5")
    assert not path.exists()
    with HistoryFile.create(path) as history:
        history.add(human())
        history.undo()
    assert path.exists()


def test_the_file_of_this_version_is_read_for_ever() -> None:
    """This file never changes: a later version that cannot read it breaks the conversations of its users."""
    found = read_history(VECTOR)
    assert found.about["id"] == "5e0d6c52-7f5e-4b53-9a80-0f3f0d2a6f11"
    assert (found.switched.model, found.switched.provider) == ("kimi-k3", "kimi-coding")
    assert found.troubles == ()
    assert found.messages == (
        Message("user", (Text("What is in here?\nTell me. 👀"), Media("image", data="aGk=", media_type="image/png"))),
        Message(
            "assistant",
            (
                Reasoning("I look.", signature="sig", details=({"type": "summary", "summary": "I look."},)),
                Text("One moment."),
                ToolCall("hist_tool_ls0", "ls", '{"path": "."}'),
            ),
        ),
        Message("tool", (ToolResult("hist_tool_ls0", "ls", (Text("a.txt"),)),)),
        Message("assistant", (Reasoning("", field="reasoning"), Text("One file."))),
    )


def test_a_file_of_a_later_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    data = VECTOR.read_bytes().replace(b'"version":1', b'"version":3')
    path.write_bytes(data)
    with pytest.raises(HistoryError, match=r"written by a newer Moonshim \(format 3, this version reads up to 2\)"):
        HistoryFile.open(path)
    assert path.read_bytes() == data


def test_fields_and_lines_that_are_not_known_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    lines = [
        '{"moonshim":"conversation","version":1,"id":"x","colour":"red"}',
        '{"message":{"speaker":"human","parts":[{"type":"text","text":"Hi","lang":"en"}],"mood":1},"from":"web"}',
        '{"rated":5}',
        "",
    ]
    path.write_text("\n".join(lines))
    with HistoryFile.open(path) as history:
        assert history.messages == (human(),)
        assert history.about["colour"] == "red"
        history.add(ai())
        with history.copy_to(tmp_path / "two.jsonl") as copy:
            assert copy.messages == history.messages
            assert copy.about["colour"] == "red"
            copy.add(human("Bye"))
    assert path.read_text().startswith("\n".join(lines))
    assert (tmp_path / "two.jsonl").read_text().splitlines()[1:4] == path.read_text().splitlines()[1:4]
    assert read_history(tmp_path / "two.jsonl").messages == (human(), ai(), human("Bye"))


@pytest.mark.parametrize(
    "data",
    [b"hello\n", b"hello", b"{}", b"[]\n", b'{"moonshim":"gateway","version":1}\n', b"\xff\xfe\n", b"\0" * 50 + b"\n"],
)
def test_what_is_no_conversation_is_refused_and_left_as_it_is(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(data)
    with pytest.raises(HistoryError, match="is not a Moonshim conversation"):
        HistoryFile.open(path)
    assert path.read_bytes() == data


def test_a_line_that_cannot_be_read_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        for text in ("a", "b", "c"):
            history.add(human(text))
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:20] + b"\0\0" + lines[2][22:]
    path.write_bytes(b"\n".join(lines))
    with HistoryFile.open(path) as again:
        assert again.messages == (human("a"), human("c"))
        assert again.troubles == (f"line 3 of {path} cannot be read and was skipped",)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        history.add(human())
        with pytest.raises(HistoryInUse, match="open in another process"):
            HistoryFile.open(path)
        assert read_history(path).messages == (human(),)
    with HistoryFile.open(path) as again:
        assert again.messages == (human(),)


def test_a_history_that_nobody_closes_gives_its_file_free(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    history = HistoryFile.create(path)
    history.add(human())
    del history
    HistoryFile.open(path).close()


def test_what_is_closed_takes_nothing_more(tmp_path: Path) -> None:
    history = HistoryFile.create(tmp_path / "one.jsonl")
    history.close()
    history.close()
    with pytest.raises(HistoryError, match="is closed"):
        history.add(human())
    assert history.messages == ()


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="No such file"):
        HistoryFile.open(tmp_path / "none.jsonl")
    with pytest.raises(HistoryError, match="No such file"):
        read_history(tmp_path / "none.jsonl")
    with pytest.raises(HistoryError, match="directory"):
        HistoryFile.open(tmp_path)
    with pytest.raises(HistoryError, match="cannot open"):
        HistoryFile.open("a\0b")
    HistoryFile.create(tmp_path / "one.jsonl").close()
    (tmp_path / "two.jsonl").write_text("")
    with pytest.raises(HistoryError, match="already exists"):
        HistoryFile.create(tmp_path / "two.jsonl")
    with pytest.raises(HistoryError, match="cannot create"):
        HistoryFile.create(tmp_path / "two.jsonl" / "inside")


def test_what_is_no_json_cannot_be_kept(tmp_path: Path) -> None:
    with HistoryFile.create(tmp_path / "one.jsonl") as history:
        with pytest.raises(InvalidInput):
            history.add(Message("user", (Text("x"),), {"thing": object()}))
        assert history.messages == ()


# -- any messages ------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec=None, categories=None), max_size=20) | st.sampled_from(
    ["", "\n", "\r\n", "\u2028", '{"undo":1}', "👀", "\ud83d", "\0", "<|tool_calls_section_begin|>"]
)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
MAYBE = st.none() | TEXTS
SPOKEN = st.builds(Text, TEXTS)
MEDIA = st.builds(
    Media, st.sampled_from(["image", "audio", "video", "file"]), MAYBE, MAYBE, MAYBE, OBJECTS, MAYBE, MAYBE
)
PARTS: st.SearchStrategy[Part] = (
    SPOKEN
    | MEDIA
    | st.builds(Reasoning, TEXTS, MAYBE, st.lists(OBJECTS, max_size=2).map(tuple), MAYBE)
    | st.builds(ToolCall, TEXTS, TEXTS, TEXTS, MAYBE)
    | st.builds(ToolResult, TEXTS, MAYBE, st.lists(SPOKEN | MEDIA, max_size=2).map(tuple), st.booleans(), MAYBE)
)
MESSAGES = st.builds(
    Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(PARTS, max_size=4).map(tuple), OBJECTS
)


@given(st.lists(MESSAGES | st.sampled_from(["undo", "clear"]), max_size=6))
def test_any_messages_survive_saving_and_loading(tmp_path_factory: Any, doings: list[Any]) -> None:
    path = tmp_path_factory.mktemp("history") / "one.jsonl"
    beside = History()
    with HistoryFile.create(path) as history:
        for doing in doings:
            for one in (history, beside):
                if doing == "undo":
                    one.undo()
                elif doing == "clear":
                    one.clear()
                else:
                    one.add(doing)
        assert history.messages == beside.messages
        assert read_history(path).messages == beside.messages
        history._is_new = False
    with HistoryFile.open(path) as again:
        assert again.messages == beside.messages
        assert again.troubles == ()
