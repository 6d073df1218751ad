"""A seed and a number -> a request and a response without any fault, as a host streams it, with an honest usage.

The tokens are counted with Kimi's own vocabulary, on the text as the model writes it: the markers of its calls and the
tags around its parts included.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeAlias

from splintr import AnyTokenizer, Tokenizer

from tests.laws.clean_streams.texts import text, value

Json: TypeAlias = dict[str, Any]

HOSTS: Final = (
    *("generic", "vllm", "sglang", "moonshot", "openrouter", "fireworks", "together", "siliconflow"),
    *("deepinfra", "baseten", "novita", "groq", "nim"),
)
_SEVERAL: Final = ("generic", "vllm", "sglang", "fireworks", "together")
"""Hosts that accept `n`."""
MODELS: Final = ("kimi-k2.5", "kimi-k2.6", "kimi-k2.7-code", "kimi-k2-thinking", "kimi-k3", "kimi-k3.1-pro")
_QUOTED: Final = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.Bash:0<|tool_call_argument_begin|>"
    '{"command": "ls"}<|tool_call_end|><|tool_calls_section_end|>'
)
_TOOLS: Final[dict[str, dict[str, str]]] = {
    "Bash": {"command": "string", "timeout": "integer"},
    "read_file": {"path": "string", "offset": "integer", "limit": "integer"},
    "write_file": {"path": "string", "content": "string"},
    "list_files": {},
    "search-web": {"query": "string", "filters": "object"},
    "todoWrite": {"items": "array"},
    "mcp__git__log": {"options": "object", "all": "boolean"},
}


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: str
    """The JSON that the host sends."""
    written: Json
    """What it means."""


@dataclass(frozen=True)
class Choice:
    reasoning: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()
    after: str = ""
    """Text after the calls."""
    finish: str = "stop"


@dataclass
class CleanCase:
    """A request of a client, and the frames that its host sends."""

    title: str
    client: str
    host: str
    model: str
    request: Json
    choices: list[Choice]
    reasoning_field: str
    usage: Json | None
    """The usage that counts at the end; None: the host sends none."""
    pieces: list[bytes] = field(default_factory=list)
    """The stream as it comes from the network; empty for a whole body."""
    body: Json | None = None
    unknown: set[tuple[str, str, str]] = field(default_factory=set)
    """Fields that no rule knows: where they are, their name, their value as JSON."""
    comments: int = 0


# --- tokens ---------------------------------------------------------------------------------------------------------


Count: TypeAlias = Callable[[str], int]


@cache
def _tokenizer(name: str) -> AnyTokenizer:
    return Tokenizer.from_pretrained(name)


def _counted_with(name: str) -> Count:
    return lambda text_: len(_tokenizer(name).encode_ordinary(text_)) if text_ else 0


def _approximately(characters: float, wide: float) -> Count:
    """So many characters per token, and so many tokens for a wide one (Chinese, Japanese, Korean)."""

    def count(text_: str) -> int:
        narrow = sum(one < "\u2e80" for one in text_)
        return round(narrow / characters + (len(text_) - narrow) * wide)

    return count


def completion_tokens(choice: Choice, model: str, count: Count, *, hidden: str = "") -> tuple[int, int]:
    """How many tokens the model writes for this choice, and how many of them are reasoning."""
    thought = count(hidden or choice.reasoning)
    spoken = count(choice.content) + count(choice.after)
    is_k3 = "k3" in model
    if is_k3:
        # close(think) open(response) close(response) close(message) <|end_of_msg|>
        total = thought + 3 + 3 + spoken + 3 + 3 + 1
        total += 6 if choice.calls else 0
        for number, call in enumerate(choice.calls):
            total += 2 + count(f'call tool="{call.name}" index="{number + 1}"') + 3
            for key, one in call.written.items():
                raw = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False, separators=(",", ":"))
                total += 2 + count(f'argument key="{key}" type="string"') + count(raw) + 3
    else:
        total = thought + 2 + spoken + 1
        total += 2 if choice.calls else 0
        for number, call in enumerate(choice.calls):
            total += 3 + count(f"functions.{call.name}:{number}") + count(call.arguments)
    return total, thought


# --- requests and responses -----------------------------------------------------------------------------------------


def clean_case(seed: str | int, number: int) -> CleanCase:
    dice = random.Random(f"clean streams {seed} {number}")
    client = dice.choice(("openai_chat", "openai_chat", "openai_chat", "anthropic", "openai_responses"))
    host, model = dice.choice(HOSTS), dice.choice(MODELS)
    declared = dice.sample(list(_TOOLS), dice.randint(1, len(_TOOLS))) if dice.random() < 0.85 else []
    several = client == "openai_chat" and host in _SEVERAL and dice.random() < 0.15
    choices = [_choice(dice, declared, model, host) for _ in range(dice.randint(2, 3) if several else 1)]
    whole = dice.random() < 0.1
    fields = ["reasoning_content", "reasoning"] if host in ("vllm", "generic") else ["reasoning_content"]
    reasoning_field = "both" if host == "openrouter" else dice.choice(fields)
    kind, hidden = _usage_kind(dice, choices, client)
    if hidden:
        choices = [replace(choice, reasoning="") for choice in choices]
        # Some hosts show that there was reasoning: encrypted, to be sent back.
        reasoning_field = "encrypted" if kind == "encrypted reasoning" else reasoning_field
    usage = _usage(dice, kind, choices, model, hidden)
    case = CleanCase(
        f"clean stream {number} (seed {seed}): {client} client, {model} at {host}, {'whole' if whole else 'streamed'}, "
        f"usage: {kind}",
        client,
        host,
        model,
        _request(number, client, model, declared, len(choices), stream=not whole),
        choices,
        reasoning_field,
        usage,
    )
    if whole:
        case.body = _body(dice, case)
    else:
        case.pieces = _network(dice, _frames(dice, case))
    return case


def _choice(dice: random.Random, declared: list[str], model: str, host: str) -> Choice:
    reasoning = text(dice) if dice.random() < 0.6 else ""
    wanted = dice.choice((1, 1, 1, 2, 3)) if declared and dice.random() < 0.45 else 0
    calls = tuple(_call(dice, declared, place, model, host) for place in range(wanted))
    if not calls and reasoning and dice.random() < 0.03:
        return Choice(reasoning, finish="length")
    content = text(dice) if not calls or dice.random() < 0.5 else ""
    after = ""
    if calls and dice.random() < 0.05:
        after = dice.choice(("I list the files now.", "Let's see what comes back.", "请稍等。"))
    finish = "tool_calls" if calls else dice.choice(("stop", "stop", "stop", "stop", "length"))
    return Choice(reasoning, content, calls, after, finish)


def _call(dice: random.Random, declared: list[str], place: int, model: str, host: str) -> Call:
    name = dice.choice(declared)
    arguments: Json = {}
    for key, kind in _TOOLS[name].items():
        if arguments and dice.random() < 0.3:
            continue
        arguments[key] = _argument(dice, kind)
    separators = dice.choice(((",", ":"), (", ", ": ")))
    dumped = json.dumps(arguments, ensure_ascii=dice.random() < 0.1, separators=separators)
    return Call(_id(dice, name, place, model, host), name, dumped, arguments)


def _argument(dice: random.Random, kind: str) -> Any:
    match kind:
        case "string":
            return text(dice, 400)
        case "integer":
            return dice.randint(0, 5000)
        case "boolean":
            return dice.random() < 0.5
        case "object":
            return {f"k{at}": value(dice) for at in range(dice.randint(0, 3))}
        case _:
            return [value(dice) for _ in range(dice.randint(0, 3))]


def _id(dice: random.Random, name: str, place: int, model: str, host: str) -> str:
    if "k3" not in model:
        return f"functions.{name}:{place}"
    if host == "moonshot":
        return f"{name}_{place}"
    if host == "vllm":
        return f"chatcmpl-tool-{dice.randbytes(16).hex()}"
    return dice.choice((f"call_{dice.randbytes(12).hex()}", f"functions.{name}:{place}"))


def _request(number: int, client: str, model: str, declared: list[str], n: int, *, stream: bool) -> Json:
    schemas = {
        name: {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in _TOOLS[name].items()},
            "required": list(_TOOLS[name])[:1],
        }
        for name in declared
    }
    body: Json = {"model": model, "stream": stream}
    asked = "Please go on."
    if number % 20 == 0:  # A conversation about markers makes no difference for a response without them.
        asked = f"It wrote {_QUOTED}, and then? {asked}"
    tools: list[Json]
    match client:
        case "openai_chat":
            body["messages"] = [{"role": "user", "content": asked}]
            body |= {"stream_options": {"include_usage": True}} if stream else {}
            body |= {"n": n} if n > 1 else {}
            tools = [{"type": "function", "function": {"name": key, "parameters": one}} for key, one in schemas.items()]
        case "anthropic":
            body |= {"max_tokens": 4096, "messages": [{"role": "user", "content": asked}]}
            tools = [{"name": key, "input_schema": one} for key, one in schemas.items()]
        case _:
            body["input"] = asked
            tools = [
                {"type": "function", "name": key, "parameters": one, "strict": False} for key, one in schemas.items()
            ]
    return body | ({"tools": tools} if tools else {})


# --- usage ----------------------------------------------------------------------------------------------------------

_USAGES: Final = (
    *("last chunk", "last chunk", "last chunk", "finish chunk", "in the choice", "in the choice and last chunk"),
    *("every chunk", "absent", "cached", "details", "rejected predictions", "hidden reasoning", "null in every chunk"),
    *("prompt first", "few extra tokens", "dollars", "another vocabulary", "approximate", "encrypted reasoning"),
)


def _usage_kind(dice: random.Random, choices: list[Choice], client: str) -> tuple[str, bool]:
    """The name of a kind of usage, and whether it counts reasoning that the client does not see."""
    kind = dice.choice(_USAGES)
    if kind == "encrypted reasoning" and client != "openai_chat":
        kind = "hidden reasoning"  # Clients of other dialects get it as a signature, which is not compared here.
    hides = kind in ("hidden reasoning", "encrypted reasoning")
    # A response must still have something to say.
    if hides and not all(choice.content or choice.calls for choice in choices):
        return "last chunk", False
    return kind, hides


def _usage(dice: random.Random, kind: str, choices: list[Choice], model: str, hidden: bool) -> Json | None:
    if kind == "absent":
        return None
    thoughts = [text(dice) * dice.randint(1, 5) if hidden else "" for _ in choices]
    count = _counted_with("o200k_base" if kind == "another vocabulary" else "kimi_k2")
    if kind == "approximate":
        count = _approximately(dice.uniform(3.5, 4.2), dice.uniform(0.6, 1))
    counted = [
        completion_tokens(choice, model, count, hidden=thought)
        for choice, thought in zip(choices, thoughts, strict=True)
    ]
    tokens, thought_tokens = sum(one for one, _ in counted), sum(one for _, one in counted)
    prompt = dice.randint(20, 100_000)
    details: Json = {}
    more: Json = {}
    match kind:
        case "cached":
            cached = dice.randint(0, prompt)
            more = {"prompt_tokens_details": {"cached_tokens": cached}}
            more |= {"cached_tokens": cached} if dice.random() < 0.5 else {}
        case "details":
            details = {"reasoning_tokens": thought_tokens, "audio_tokens": 0}
        case "rejected predictions":
            rejected = dice.randint(1, 200)
            details = {"accepted_prediction_tokens": dice.randint(0, tokens), "rejected_prediction_tokens": rejected}
            tokens += rejected
        case "hidden reasoning":
            details = {"reasoning_tokens": thought_tokens}
        case "few extra tokens":  # White space at the ends, or a stop sequence, that the host does not pass on.
            tokens += dice.randint(1, 3)
        case "dollars":
            more = {"cost": 0.0012, "cost_details": {"upstream_inference_cost": None}, "is_byok": False}
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    return usage | more | ({"completion_tokens_details": details} if details else {})


# --- frames ---------------------------------------------------------------------------------------------------------


def _split(dice: random.Random, text_: str) -> list[str]:
    """In pieces as a host sends them: a token, several (speculative decoding), or everything."""
    longest = dice.choice((1, 3, 5, 5, 8, 20, 60, 10_000))
    pieces, at = [], 0
    while at < len(text_):
        size = dice.randint(1, longest)
        pieces.append(text_[at : at + size])
        at += size
    return pieces


def _thinking(case: CleanCase, piece: str) -> Json:
    if case.reasoning_field == "both":
        entry = {"type": "reasoning.text", "text": piece, "format": "unknown", "index": 0}
        return {"reasoning": piece, "reasoning_details": [entry]}
    return {case.reasoning_field: piece}


def _encrypted(dice: random.Random) -> Json:
    data = dice.randbytes(96).hex()
    return {"type": "reasoning.encrypted", "data": data, "id": "rs_1", "format": "unknown", "index": 0}


def _deltas(dice: random.Random, case: CleanCase, choice: Choice) -> list[Json]:
    deltas: list[Json] = [{"role": "assistant", "content": dice.choice(("", "", None))}]
    deltas += [_thinking(case, piece) for piece in _split(dice, choice.reasoning)]
    if case.reasoning_field == "encrypted":
        deltas.append({"reasoning_details": [_encrypted(dice)]})
    deltas += [{"content": piece} for piece in _split(dice, choice.content)]
    for place, call in enumerate(choice.calls):
        head: Json = {"index": place, "id": call.id, "type": "function", "function": {"name": call.name}}
        pieces = _split(dice, call.arguments)
        head["function"]["arguments"] = pieces.pop(0) if dice.random() < 0.4 else ""
        deltas.append({"tool_calls": [head]})
        deltas += [{"tool_calls": [{"index": place, "function": {"arguments": piece}}]} for piece in pieces]
    deltas += [{"content": piece} for piece in _split(dice, choice.after)]
    if case.host in ("vllm", "openrouter") and dice.random() < 0.3:  # Role and content in every delta.
        deltas = [{"role": "assistant", "content": delta.get("content", ""), **delta} for delta in deltas]
    return deltas


def _frames(dice: random.Random, case: CleanCase) -> list[bytes]:
    head: Json = {
        "id": f"chatcmpl-{case.title.split()[2]}",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": case.model,
    }
    if dice.random() < 0.4:
        head |= dice.choice(({"system_fingerprint": "fp_1"}, {"service_tier": "default"}, {"provider": "Moonshot AI"}))
    kind = case.title.rpartition("usage: ")[2]
    odd = dice.choice((0.0, 0.0, 0.05, 0.3))
    waiting = [_deltas(dice, case, choice) for choice in case.choices]
    chunks: list[Json] = []
    sent = 0
    while any(waiting):
        index = dice.choice([place for place, deltas in enumerate(waiting) if deltas])
        choice: Json = {"index": index, "delta": waiting[index].pop(0), "finish_reason": None}
        sent += 1
        chunk = {**head, "choices": [choice]}
        if dice.random() < odd:
            _add_unknown(dice, case, chunk, choice, sent)
        if kind == "every chunk" and case.usage is not None:
            sofar = {"prompt_tokens": case.usage["prompt_tokens"], "completion_tokens": sent}
            chunk["usage"] = sofar | {"total_tokens": sofar["prompt_tokens"] + sent}
        elif kind == "null in every chunk":
            chunk["usage"] = None
        elif kind == "prompt first" and sent == 1 and case.usage is not None:
            prompt = case.usage["prompt_tokens"]
            chunk["usage"] = {"prompt_tokens": prompt, "completion_tokens": 0, "total_tokens": prompt}
        chunks.append(chunk)
    chunks += _ending(dice, case, head, kind)
    compact = dice.random() < 0.6
    separators = (",", ":") if compact else (", ", ": ")
    ascii_only = dice.random() < 0.3
    frames = []
    for chunk in chunks:
        if dice.random() < 0.02:
            frames.append(dice.choice((b": keep-alive\n\n", b": OPENROUTER PROCESSING\n\n")))
            case.comments += 1
        dumped = json.dumps(chunk, ensure_ascii=ascii_only, separators=separators)
        frames.append(f"data: {dumped}\n\n".encode())
    return [*frames, b"data: [DONE]\n\n"]


def _ending(dice: random.Random, case: CleanCase, head: Json, kind: str) -> list[Json]:
    chunks: list[Json] = []
    for index, choice in enumerate(case.choices):
        entry: Json = {"index": index, "delta": {}, "finish_reason": choice.finish}
        chunk = {**head, "choices": [entry]}
        is_last = index == len(case.choices) - 1
        if case.usage is not None and is_last:
            if kind.startswith("in the choice"):
                entry["usage"] = case.usage
            elif kind == "finish chunk":
                chunk["usage"] = case.usage
        if dice.random() < 0.2:
            _add_unknown(dice, case, chunk, entry, 100_000 + index)
        chunks.append(chunk)
    if case.usage is not None and kind not in ("in the choice", "finish chunk"):
        chunks.append({**head, "choices": [], "usage": case.usage})
    return chunks


def _add_unknown(dice: random.Random, case: CleanCase, chunk: Json, choice: Json, number: int) -> None:
    """Fields that nothing here knows; their values differ from chunk to chunk, so that each can be missed."""
    place, key, made = dice.choice(
        (
            ("chunk", "x_trace", f"t{number}"),
            ("chunk", "kv_transfer_params", {"n": number}),
            ("chunk", "prompt_token_ids", [number]),
            ("choice", "stop_reason", number),
            ("choice", "token_ids", [number, number + 1]),
            ("choice", "logprobs", {"content": [{"token": "a", "logprob": -0.5, "bytes": [number % 256]}, number]}),
            ("choice", "content_filter_results", {"hate": {"filtered": False, "n": number}}),
            ("delta", "refusal_score", number),
            ("delta", "annotations", [{"type": "url_citation", "n": number}]),
        )
    )
    holders: dict[str, Json] = {"chunk": chunk, "choice": choice, "delta": choice["delta"]}
    holders[place][key] = made
    case.unknown.add((place, key, json.dumps(made)))


def _network(dice: random.Random, frames: list[bytes]) -> list[bytes]:
    """The pieces in which the frames come: one by one, several at once, or cut anywhere."""
    way = dice.random()
    if way < 0.6:
        return frames
    whole = b"".join(frames)
    if way < 0.7:
        return [whole]
    longest = dice.choice((7, 100, 1500))
    pieces, at = [], 0
    while at < len(whole):
        size = dice.randint(1, longest)
        pieces.append(whole[at : at + size])
        at += size
    return pieces


def _body(dice: random.Random, case: CleanCase) -> Json:
    choices: list[Json] = []
    for index, choice in enumerate(case.choices):
        message: Json = {"role": "assistant", "content": (choice.content + choice.after) or None}
        if choice.reasoning:
            message |= _thinking(case, choice.reasoning)
        if case.reasoning_field == "encrypted":
            message["reasoning_details"] = [_encrypted(dice)]
        if choice.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in choice.calls
            ]
        choices.append({"index": index, "message": message, "finish_reason": choice.finish})
    body: Json = {"id": "chatcmpl-7", "object": "chat.completion", "created": 1700000000, "model": case.model}
    body["choices"] = choices
    if case.usage is not None:
        body["usage"] = case.usage
    if dice.random() < 0.3:
        body["x_trace"] = "t1"
        choices[0]["token_ids"] = [1, 2]
        choices[0]["message"]["annotations"] = []
    return body
