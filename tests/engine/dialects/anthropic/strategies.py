"""Hypothesis strategies for Messages: requests with every kind of block, any JSON, and the events of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from moonshim.engine.values.conversation import Message, Part, Reasoning, Text, ToolCall
from moonshim.engine.wire.json_codec import encode

Json = dict[str, Any]

words: Final = st.text(alphabet='aäb {}"\\\n<你🙂:,', min_size=1, max_size=12)
names: Final = st.sampled_from(("ls", "read_file", "mcp__git-log"))
ids: Final = st.sampled_from(("toolu_1", "toolu_2", "call_a", "functions.ls:0", "srvtoolu_9"))
any_json: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 9) | st.floats(allow_nan=False, width=32) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
objects: Final = st.dictionaries(st.sampled_from(("path", "a", "b")), any_json, max_size=3)
_extra: Final[st.SearchStrategy[Json]] = (
    st.just({}) | st.fixed_dictionaries({"cache_control": st.just({"type": "ephemeral"})}) | st.just({"x": [1]})
)


def _block(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    shape = st.fixed_dictionaries({"type": st.just(kind), **fields})
    return st.builds(lambda block, more: block | more, shape, _extra)


texts: Final = _block("text", text=words)
_base64: Final = st.fixed_dictionaries(
    {
        "type": st.just("base64"),
        "media_type": st.sampled_from(("image/png", "application/pdf")),
        "data": st.just("YQ=="),
    }
)
_by_url: Final = st.fixed_dictionaries({"type": st.just("url"), "url": st.just("https://x.example/a")})
_by_file: Final = st.just({"type": "file", "file_id": "file_1"})
_of_text: Final = st.fixed_dictionaries(
    {"type": st.just("text"), "media_type": st.just("text/plain"), "data": words}
) | st.fixed_dictionaries({"type": st.just("content"), "content": words | st.lists(texts, max_size=2)})
images: Final = _block("image", source=_base64 | _by_url | _by_file)
documents: Final = _block("document", source=_base64 | _by_url | _by_file | _of_text, title=words)
references: Final = _block("tool_reference", tool_name=names)
found: Final = _block("search_result", source=words, title=words, content=st.lists(texts, max_size=2))
results: Final = st.builds(
    lambda block, content, flag: block | content | flag,
    _block("tool_result", tool_use_id=ids),
    st.just({})
    | st.fixed_dictionaries({"content": words | st.lists(texts | images | documents | references | found, max_size=3)}),
    st.just({}) | st.fixed_dictionaries({"is_error": st.booleans()}),
)
calls: Final = _block("tool_use", id=ids, name=names, input=objects)
thoughts: Final = (
    _block("thinking", thinking=words)
    | _block("thinking", thinking=words, signature=st.sampled_from(("", "EqoB", "c2ln")))
    | _block("redacted_thinking", data=words)
)
strange: Final = _block("server_tool_use", id=ids, name=names, input=objects) | _block("novelty", content=any_json)


def _message(role: str, blocks: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    content = words | st.lists(blocks, min_size=1, max_size=4)
    shape = st.fixed_dictionaries({"role": st.just(role), "content": content})
    return st.builds(lambda message, more: message | more, shape, _extra)


messages: Final = st.lists(
    _message("user", texts | images | documents | results | strange | found)
    | _message("assistant", thoughts | texts | calls | strange)
    | _message("system", texts),
    min_size=1,
    max_size=6,
)
tools: Final = st.lists(
    _block("custom", name=names, description=words, input_schema=st.just({"type": "object", "properties": {}}))
    | st.fixed_dictionaries({"name": names, "input_schema": st.just({"type": "object"}), "strict": st.booleans()})
    | st.fixed_dictionaries({"name": names, "input_schema": st.just({}), "defer_loading": st.booleans()})
    | _block("web_search_20250305", name=st.just("web_search"), max_uses=st.just(3))
    | _block("bash_20250124", name=st.just("bash"))
    | st.just({"type": "mcp_toolset", "mcp_server_name": "git"}),
    max_size=4,
)
_fields: Final = {
    "system": st.just("") | st.just([]) | words | st.lists(texts, max_size=3),
    "tools": tools | st.none(),
    "tool_choice": st.sampled_from(({"type": "auto", "disable_parallel_tool_use": True}, {"type": "none"}, None))
    | st.sampled_from(({"type": "tool", "name": "ls"}, {"type": "any", "disable_parallel_tool_use": False})),
    "thinking": st.sampled_from(
        ({"type": "adaptive", "display": "omitted"}, {"type": "enabled", "budget_tokens": 2048}, {"type": "disabled"})
    )
    | st.just({"type": "between_tools"}),
    "output_config": st.sampled_from(
        ({"effort": "high"}, {"format": {"type": "json_schema", "schema": {}}, "new": 1}, {"format": {"type": "odd"}})
    ),
    "output_format": st.just({"type": "json_schema", "schema": {"type": "object"}}),
    "temperature": st.sampled_from((0, 0.5, 1, None)),
    "top_p": st.just(0.9),
    "top_k": st.just(4),
    "stop_sequences": st.lists(words, max_size=2),
    "stream": st.booleans(),
    "metadata": st.sampled_from(({"user_id": "u"}, {"user_id": None, "tag": 1}, {})),
    "service_tier": st.just("auto"),
    "context_management": st.just({"edits": [{"type": "clear"}]}),
    "betas": st.just(["x"]),
}
requests: Final[st.SearchStrategy[Json]] = st.fixed_dictionaries(
    {"model": st.just("kimi-k3"), "max_tokens": st.integers(1, 9), "messages": messages},
    optional=_fields,
)


def _merged(parts: Sequence[Part]) -> Message:
    """Two blocks of speech of the same kind in a row are one: a stream of what was heard does not tell them apart."""
    out: list[Part] = []
    for part in parts:
        if not (out and type(out[-1]) is type(part) and not isinstance(part, ToolCall)):
            out.append(part)
    return Message("assistant", tuple(out))


_spoken: Final[st.SearchStrategy[Part]] = (
    st.builds(Text, words)
    | st.builds(Reasoning, words)
    | st.builds(
        lambda text, signature, details, field: Reasoning(text, signature, details, field),
        words | st.just(""),
        st.none() | st.just("EqoB"),
        st.just(()) | st.just(({"type": "encrypted", "encrypted": "x"},)),
        st.none() | st.just("reasoning_content"),
    )
    | st.builds(lambda wire_id, name, given: ToolCall("", name, encode(given).decode(), wire_id), ids, names, objects)
)
answers: Final[st.SearchStrategy[Message]] = st.lists(_spoken, max_size=5).map(_merged)
