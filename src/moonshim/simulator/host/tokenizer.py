"""The vocabulary of a Kimi model (`tiktoken.model`) and a prompt -> the number of tokens that the model reads.

The vocabulary is not part of Moonshim: Moonshot publishes it with the weights, the same file for K2 to K3. What the
generations do not share is in `_SPECIAL`, and how they read text:

| generations | one token each | text that a client sends |
|---|---|---|
| K2 to K2.7 | the markers in the prompt, wherever they come from | read together with the template around it |
| K3 | the markers of the template | read apart, piece by piece; a marker in it is ordinary text |

Sources: the pattern and the limits are in `tokenization_kimi.py`, the markers in `tokenizer_config.json` and the pieces
of K3 in `encoding_k3.py`, in the repositories at huggingface.co/moonshotai. They were read from copies: those of the
two Python files in vLLM and Dynamo, that of the markers in splintr. Inferred: that K2-Thinking has K2.5's markers of
reasoning (vLLM's parser needs them). No vocabulary of K3.1 was found, so its tokens are estimated.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.tokens import MEDIA_TOKENS
from moonshim.errors import InvalidInput
from moonshim.simulator.host.markers import ARGUMENT_BEGIN, CALL_BEGIN, CALL_END, SECTION_BEGIN, SECTION_END
from moonshim.simulator.render import render_prompt
from moonshim.simulator.request import SimRequest

if TYPE_CHECKING:
    from tiktoken import Encoding

__all__ = ["Tokenizer", "TokenizerError", "load_tokenizer", "media_tokens"]

_FILE: Final = "tiktoken.model"
_MOST_BYTES: Final = 64 * 2**20
"""The published file has 2.8 MB; a model's weights, named by mistake, are not read into memory."""

# A run of Chinese characters is split off before words are; this is what the letters of a word exclude.
_START: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_REST: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_BEFORE, _AFTER = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PATTERN: Final = "|".join(
    (
        r"[\p{Han}]+",
        f"{_BEFORE}{_START}*{_REST}+{_AFTER}",
        f"{_BEFORE}{_START}+{_REST}*{_AFTER}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_LONGEST_TEXT: Final = 400_000
_LONGEST_RUN: Final = 25_000
"""Moonshot's tokenizer cuts longer texts, and longer runs with or without white space, before it encodes them."""
_LONG_RUN: Final = re.compile(rf"(?<!\S)\S{{{_LONGEST_RUN + 1},}}|(?<!\s)\s{{{_LONGEST_RUN + 1},}}")

_BASIC: Final = ("[BOS]", "[EOS]", "[EOT]", "[UNK]", "[PAD]", "<|start_header_id|>", "<|end_header_id|>")
_TURNS: Final = ("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>")
_CALLS: Final = (SECTION_BEGIN, CALL_BEGIN, ARGUMENT_BEGIN, CALL_END, SECTION_END)
_THOUGHTS: Final = ("<think>", "</think>")
_MEDIA: Final = ("<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>")


def _one_of(*tokens: str) -> re.Pattern[str]:
    return re.compile(f"({'|'.join(map(re.escape, tokens))})")


_K25: Final = _one_of(*_BASIC, *_TURNS, *_CALLS, *_THOUGHTS, *_MEDIA)
_SPECIAL: Final = {
    "k2": _one_of(*_BASIC, *_TURNS, *_CALLS),
    "k2-thinking": _one_of(*_BASIC, *_TURNS, *_CALLS, *_THOUGHTS),
    "k2.5": _K25,
    "k2.6": _K25,
    "k2.7": _K25,
    "k3": _one_of("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "<|media_pad|>"),
}
"""Tokens outside the vocabulary, by generation. Those of K3 that its prompts never contain are left out."""

# Noncharacters, which no text contains: inside a marker that a client sent, and after each part of a message.
_QUOTED: Final = "<\ufdd0|"
_PART_END: Final = "\ufdd1"
_ATTRIBUTE: Final = re.compile(r'( [a-z]+)(=")([^"]*)(")')
_PLACEHOLDERS: Final = ("<|media_pad|>", "<|kimi_k25_video_placeholder|>")


def media_tokens(prompt: str) -> int:
    """What the images and videos in a prompt become, estimated: it depends on their size."""
    return MEDIA_TOKENS * sum(map(prompt.count, _PLACEHOLDERS))


class TokenizerError(InvalidInput):
    """The vocabulary cannot be used: a missing file, a damaged one, or no package to read it with."""

    code = "invalid_tokenizer"


class Tokenizer:
    """Counts tokens as the tokenizer of a Kimi model does. It knows the generations whose vocabulary is public."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    def knows(self, generation: str) -> bool:
        return generation in _SPECIAL

    def count_prompt(self, request: SimRequest, *, renamed: bool = False) -> int:
        """The tokens of the prompt for this request; `renamed` is that of `render_prompt`."""
        asked = _quote_markers(request) if request.family == "k3" else request
        return self.count(render_prompt(asked, renamed=renamed), request.generation)

    def count(self, text: str, generation: str) -> int:
        """The tokens of a text in the grammar of this generation."""
        pieces = _SPECIAL[generation].split(text)
        texts, specials = pieces[::2], pieces[1::2]
        total = len(specials) + media_tokens(text)
        for between, before in zip(texts, ["", *specials], strict=True):
            for piece in _tag_pieces(between) if before == "<|open|>" else between.split(_PART_END):
                plain = piece.replace(_QUOTED, "<|")
                total += sum(len(self._encoding.encode_ordinary(part)) for part in _slices(plain))
        return total


def load_tokenizer(path: str) -> Tokenizer:
    """Read `tiktoken.model`, or the one in this folder; raises `TokenizerError`."""
    file = Path(path)
    try:
        file = file.expanduser()
        if file.is_dir():
            file /= _FILE
        state = file.stat()
        if not S_ISREG(state.st_mode) or state.st_size > _MOST_BYTES:
            raise TokenizerError(f"{file} is not a vocabulary (`{_FILE}`)")
        return _load(file, state.st_mtime_ns, state.st_size)
    except TokenizerError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: `~name` of a user that does not exist
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TokenizerError(f"cannot read the vocabulary {file}: {reason}") from None


@lru_cache(maxsize=2)  # it takes half a second, and is needed for the check of the settings and for the simulator
def _load(file: Path, _modified: int, _size: int) -> Tokenizer:
    try:
        from tiktoken import Encoding
    except ImportError:
        hint = 'pip install ".[tokenizer]"   (in a checkout of Moonshim)'
        raise TokenizerError(f"counting tokens needs the package tiktoken, which is not installed: {hint}") from None
    ranks = _ranks(file)
    return Tokenizer(Encoding("kimi", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={}))


def _ranks(file: Path) -> dict[bytes, int]:
    """The lines `token rank`, the token in Base64. Every byte is a token, so that any text can be encoded."""
    ranks: dict[bytes, int] = {}
    lines = file.read_bytes().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            token, rank = line.split()
            ranks[b64decode(token, validate=True)] = int(rank)
        except ValueError:
            raise TokenizerError(f"{file} is damaged or not a vocabulary (`{_FILE}`): line {number}") from None
    if sorted(ranks.values()) != list(range(len(lines))) or any(bytes((byte,)) not in ranks for byte in range(256)):
        raise TokenizerError(f"{file} is damaged or not a vocabulary (`{_FILE}`): tokens are missing")
    return ranks


def _slices(text: str) -> Iterator[str]:
    for start in range(0, len(text), _LONGEST_TEXT):
        part, at = text[start : start + _LONGEST_TEXT], 0
        for run in _LONG_RUN.finditer(part):
            for cut in range(run.start() + _LONGEST_RUN, run.end(), _LONGEST_RUN):
                yield part[at:cut]
                at = cut
        yield part[at:]


def _tag_pieces(tag: str) -> list[str]:
    """K3 encodes a tag in pieces.

    >>> _tag_pieces('call tool="ls" index="1"')
    ['call', ' tool', '="', 'ls', '"', ' index', '="', '1', '"']
    """
    pieces = [tag.partition(" ")[0], *(piece for found in _ATTRIBUTE.finditer(tag) for piece in found.groups())]
    return pieces if "".join(pieces) == tag else [tag]  # else it is not a tag, but text after a marker


def _quote_markers(request: SimRequest) -> SimRequest:
    """The request with markers that its template cannot be confused with, and with the ends of its parts marked."""
    try:
        quoted: SimRequest = _quote(request)
    except RecursionError:  # JSON that is nested too deeply: then a marker in it counts as one token
        return request
    return quoted


def _quote(value: Any) -> Any:
    match value:
        case str():
            return value.replace("<|", _QUOTED)
        case dict():
            return {_quote(key): _quote(inner) for key, inner in value.items()}
        case list():
            return [_quote(inner) for inner in value]
        case tuple():  # of strings only where a message has several parts
            return tuple(_quote(part) + _PART_END if isinstance(part, str) and part else _quote(part) for part in value)
        case Struct():
            return replace(value, **{name: _quote(getattr(value, name)) for name in value.__struct_fields__})
        case _:
            return value
