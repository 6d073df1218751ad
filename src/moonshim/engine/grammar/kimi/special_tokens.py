"""Special tokens of Kimi's prompt format in text <-> the same text with a joiner in each, which is no token.

A server that encodes its whole prompt as one text takes `<|im_end|><|im_system|>…` in a tool result for the end of that
message and the beginning of the system's. So a word joiner (U+2060, invisible) goes behind the first character of each
token in texts that the client's system did not write, and out again of what comes back.

    text of the request     sent                    came back               text for the client
    <|im_end|>              <J|im_end|>             <J|im_end|>             <|im_end|>
    <J|im_end|>             <JJ|im_end|>            <JJ|im_end|>            <J|im_end|>

One joiner more on the way in and one less on the way out: so texts that have joiners of their own stay as they are.
"""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Failed, Finished, Repaired

__all__ = ["JOINER", "TokenRestorer", "join_texts", "join_tokens", "restore_tokens"]

JOINER: Final = "\u2060"

# Moonshot's tokenizer_config.json of K2 to K2.7, and its encoder of K3. `<think>` is none: it ends and begins nothing
# outside of the answer that the model is writing.
_NAMES: Final = """
    im_end im_user im_assistant im_system im_middle
    tool_calls_section_begin tool_calls_section_end tool_call_begin tool_call_argument_begin tool_call_end
    media_start media_begin media_content media_pad media_end kimi_k25_video_placeholder
    open close sep end_of_msg start_header_id end_header_id
"""
_ENDINGS: Final = ("|>", "|\\u003e", "|\\u003E")
"""The escapes are those of JSON, in arguments that a template decodes."""
_RESTS: Final = (
    *(f"|{name}{ending}" for name in _NAMES.split() for ending in _ENDINGS),
    *(f"{name}]" for name in ("BOS", "EOS", "EOT", "UNK", "PAD")),
)
"""What follows the first character of a token."""
_HINTS: Final = ("|>", "|\\u003", *(rest for rest in _RESTS if rest[-1] == "]"))
"""A text without any of these has no token."""
_PREFIXES: Final = frozenset(rest[:size] for rest in _RESTS for size in range(len(rest)))
_FIRST: Final = r"(?:<|\[|\\u003[cC])"
_FOLLOWS: Final = "(?=" + JOINER + "*(?:" + "|".join(map(re.escape, _RESTS)) + "))"
_TOKEN: Final = re.compile(_FIRST + _FOLLOWS)
_JOINED: Final = re.compile(f"({_FIRST}){JOINER}{_FOLLOWS}")
_TAIL: Final = re.compile(f"({_FIRST})({JOINER}+)([^{JOINER}<\\[]*)\\Z")
_CONTEXT: Final = 6
"""Characters that the first character of a token takes at most: its escape."""
_MAX_HELD: Final = 96


def join_tokens(text: str) -> tuple[str, int]:
    """The text with a joiner in each special token, and how many there are.

    >>> join_tokens("a <|im_end|> b")[0] == f"a <{JOINER}|im_end|> b", join_tokens("<|other|>")
    (True, ('<|other|>', 0))
    """
    if not any(hint in text for hint in _HINTS):
        return text, 0
    return _TOKEN.subn(lambda found: found.group() + JOINER, text)


def join_texts(texts: list[str]) -> list[str]:
    """The same for texts that a template writes one after the other.

    >>> [text.replace(JOINER, "J") for text in join_texts(["a <", "|im_end", "|> b"])]
    ['a <J', '|im_end', '|> b']
    """
    if len(texts) == 1:
        return [join_tokens(texts[0])[0]]
    places = [found.end() for found in _TOKEN.finditer("".join(texts))] if texts else []
    out, before = list[str](), 0
    for text in texts:
        inside = [place - before for place in places if before < place <= before + len(text)]
        for place in reversed(inside):
            text = text[:place] + JOINER + text[place:]
        before += len(texts[len(out)])
        out.append(text)
    return out


def restore_tokens(text: str) -> str:
    """The text without those joiners.

    >>> restore_tokens(join_tokens("[EOS] <|open|>x<|sep|>")[0])
    '[EOS] <|open|>x<|sep|>'
    """
    return _JOINED.sub(r"\1", text) if JOINER in text else text


class TokenRestorer:
    """Restores the tokens in the events of one choice. Held is only what may become a token, from a joiner on."""

    __slots__ = ("_before", "_held", "_reported")

    def __init__(self) -> None:
        self._before: dict[int, str] = {}
        """By open block: the last characters that have left."""
        self._held: dict[int, str] = {}
        self._reported = False

    def feed(self, events: list[Event]) -> list[Event]:
        """The events that leave now."""
        out: list[Event] = []
        for event in events:
            match event:
                case BlockDelta(index=index, text=text):
                    if restored := self._restore(index, text, out):
                        out.append(event if restored == text else BlockDelta(index, restored))
                    continue
                case BlockOpened(index=index):
                    self._before[index] = ""
                case BlockClosed(index=index):
                    self._flush(index, out)
                case Finished() | Failed():
                    for index in list(self._before):
                        self._flush(index, out)
            out.append(event)
        return out

    def _restore(self, index: int, text: str, out: list[Event]) -> str:
        before, held = self._before.get(index, ""), self._held.pop(index, "")
        whole = before + held + text
        restored = restore_tokens(whole) if JOINER in whole else whole
        if restored is not whole and len(restored) < len(whole) and not self._reported:
            self._reported = True
            out.append(Repaired("special_token", "a joiner was removed from a token that the request contained"))
        tail = _TAIL.search(restored) if JOINER in restored else None
        if tail is not None and tail[3] in _PREFIXES and len(tail.group()) <= _MAX_HELD:
            # The first character has left, or leaves now: only what decides about the joiner waits.
            cut = max(tail.start(2), len(before))
            self._held[index] = restored[cut:]
            restored = restored[:cut]
        self._before[index] = restored[-_CONTEXT:]
        return restored[len(before) :]

    def _flush(self, index: int, out: list[Event]) -> None:
        """The block is over: what may have become a token is text."""
        self._before.pop(index, None)
        if held := self._held.pop(index, ""):
            out.append(BlockDelta(index, held))
