"""Exact token counts: by hand with a small vocabulary, and with Kimi's own as another tokenizer counts."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import splintr
from anthropic import Anthropic
from openai import OpenAI

from bench.token_texts import MOST, text_of
from moonshim.config import Config, ProviderConfig, Secret
from moonshim.engine.tokens import MEDIA_TOKENS
from moonshim.simulator import IntendedCall, IntendedResponse, Simulator
from moonshim.simulator.config_file import load_settings
from moonshim.simulator.host.models import generation_of
from moonshim.simulator.host.parse_request import parse_request
from moonshim.simulator.host.token_counts import BLOCK, Counter, tokens_of
from moonshim.simulator.host.tokenizer import Tokenizer, TokenizerError, load_tokenizer
from moonshim.simulator.render import render_prompt
from moonshim.simulator.request import SimRequest
from tests.simulator.vocabulary import KIMI_SHA256, write_kimi, write_vocabulary
from tests.support.gateway.hosts import run
from tests.support.gateway.running import running

PROMPTS: Final = Path(__file__).parent / "render" / "prompts"
HELLO: Final[Any] = [{"role": "user", "content": "Hi ab"}]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vocabulary(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def small(file: Path) -> Tokenizer:
    return load_tokenizer(str(file))


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = write_kimi(tmp_path_factory.mktemp("kimi"))
    assert hashlib.sha256(file.read_bytes()).hexdigest() == KIMI_SHA256
    return load_tokenizer(str(file.parent))


def asked(model: str, *messages: Any, **more: Any) -> SimRequest:
    generation = generation_of(model)
    assert generation is not None
    body = {"model": model, "messages": list(messages), **more}
    return parse_request(body, wire="openai_chat", model=model, generation=generation)


# --- by hand ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "generation", "tokens"),
    [
        ("", "k2.5", 0),
        ("user", "k2.5", 1),
        ("users", "k2.5", 2),
        ("x a", "k2.5", 2),  # a space belongs to the word after it
        ("1234", "k2.5", 3),  # digits are read in groups of three: 12, 3, 4
        ("中a", "k2.5", 2),  # Chinese characters are read apart from letters
        ("中", "k3", 1),
        ("<|im_end|>", "k2", 1),
        ("<think></think>", "k2", 15),
        ("<think></think>", "k2-thinking", 2),
        ("<think></think>", "k2.7", 2),
        ("<|open|>", "k2.5", 8),
        ("<|open|>", "k3", 1),
        ("<|im_end|>", "k3", 10),
        ('<|open|>call tool="user"<|sep|>', "k3", 1 + 4 + 5 + 1 + 1 + 1 + 1),
        ("<|open|>=b<|sep|>", "k3", 3),
        ("\ud83d", "k2.5", 3),  # half of a character becomes U+FFFD
    ],
)
def test_a_text_has_as_many_tokens_as_counted_by_hand(
    text: str, generation: str, tokens: int, small: Tokenizer
) -> None:
    assert small.count(text, generation) == tokens


def test_long_runs_are_cut_as_in_moonshots_tokenizer(small: Tokenizer) -> None:
    # `b`, `ab` 12,500 times. The cut after 25,000 characters splits the last `ab`.
    assert small.count("b" + "ab" * 12_500, "k2.5") == 1 + 12_500 + 1
    assert small.count("b" + "ab" * 12_499, "k2.5") == 1 + 12_499
    assert small.count("xb " * 200_000, "k2.5") == 600_000
    assert small.count(" " * 30_000, "k2.5") == 30_000


def test_the_prompt_of_k2_is_counted_with_its_template(small: Tokenizer) -> None:
    request = asked("kimi-k2.7-code", {"role": "user", "content": "ab"})
    prompt = "<|im_user|>user<|im_middle|>ab<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    assert render_prompt(request) == prompt
    # Markers, `user`, `ab`, and the letters of `assistant`.
    assert small.count_prompt(request) == 6 + 1 + 1 + len("assistant")


def test_the_prompt_of_k2_with_a_tool_and_a_call(small: Tokenizer) -> None:
    call = {"id": "functions.ab:0", "type": "function", "function": {"name": "ab", "arguments": "{}"}}
    request = asked(
        "kimi-k2-0905-preview",
        {"role": "system", "content": "ab"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.ab:0", "content": "user"},
        tools=[{"type": "function", "function": {"name": "ab"}}],
    )
    lines = [
        ("<|im_system|>tool_declare<|im_middle|>", 2 + len("tool_declare")),
        ('[{"type":"function","function":{"name":"ab"}}]', 45),  # characters, but `ab` is one token
        ("<|im_end|>", 1),
        ("<|im_system|>system<|im_middle|>ab<|im_end|>", 3 + len("system") + 1),
        ("<|im_assistant|>assistant<|im_middle|>", 2 + len("assistant")),
        ("<|tool_calls_section_begin|><|tool_call_begin|>functions.ab:0", 2 + len("functions.ab:0") - 1),
        ("<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|><|im_end|>", 4 + 2),
        ("<|im_system|>tool<|im_middle|>", 2 + 4),
        ("## Return of functions.ab:0\n", len("## Return of functions.ab:0\n") - 1),
        ("user<|im_end|>", 2),
        ("<|im_assistant|>assistant<|im_middle|>", 2 + len("assistant")),
    ]
    assert render_prompt(request) == "".join(text for text, _ in lines)
    assert small.count_prompt(request) == sum(tokens for _, tokens in lines)


def test_k3_reads_tags_in_pieces_and_markers_of_clients_as_text(small: Tokenizer) -> None:
    def prompt(text: str) -> int:
        return small.count_prompt(asked("kimi-k3", {"role": "user", "content": text}))

    assert prompt("user") - prompt("") == 1
    assert prompt("<|open|>") - prompt("") == len("<|open|>")
    assert prompt('<|open|>message role="user"<|sep|>') - prompt("") == len("<|open|>message role") + 3 + len("<|sep|>")
    assert prompt("<|media_pad|>") - prompt("") == len("<|media_pad|>")


@pytest.mark.parametrize(("model", "tokens"), [("kimi-k2.7-code", 1), ("kimi-k3", 2)])
def test_only_k3_reads_the_parts_of_a_message_apart(model: str, tokens: int, small: Tokenizer) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    whole, empty = (asked(model, {"role": "user", "content": content}) for content in (parts, ""))
    assert small.count_prompt(whole) - small.count_prompt(empty) == tokens


def test_json_that_is_nested_too_deeply_is_counted_too(small: Tokenizer) -> None:
    deep: Any = "<|open|>"
    for _ in range(2_000):
        deep = [deep]
    request = asked("kimi-k3", {"role": "user", "content": "ab"}, metadata=deep)
    assert small.count_prompt(request) == small.count_prompt(asked("kimi-k3", {"role": "user", "content": "ab"}))


@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3"])
def test_an_image_is_an_estimate(model: str, small: Tokenizer) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    seen, none = (asked(model, {"role": "user", "content": content}) for content in ([image], ""))
    assert MEDIA_TOKENS < small.count_prompt(seen) - small.count_prompt(none) < MEDIA_TOKENS + 20


# --- with the vocabulary of Kimi ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MOST)
def test_texts_have_as_many_tokens_as_another_tokenizer_counts(kind: str, kimi: Tokenizer) -> None:
    true = len(splintr.Tokenizer.from_pretrained("kimi_k2").encode_ordinary(text_of(kind)))
    assert [kimi.count(text_of(kind), generation) for generation in ("k2", "k2.6", "k3")] == [true] * 3


@pytest.mark.parametrize("name", sorted(path.stem for path in PROMPTS.glob("k2*.txt")))
def test_prompts_of_k2_too(name: str, kimi: Tokenizer) -> None:
    prompt = (PROMPTS / f"{name}.txt").read_text("utf-8")
    true = len(splintr.Tokenizer.from_pretrained("kimi_k2").encode_with_special(prompt))
    assert kimi.count(prompt, "k2.5") == true + MEDIA_TOKENS * prompt.count("<|media_pad|>")


def test_a_prompt_of_k3_is_encoded_piece_by_piece(kimi: Tokenizer) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "São Paulo"}'}}
    request = asked(
        "kimi-k3",
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "22 °C"},
        reasoning_effort="high",
    )
    effort = (
        "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
        "supported values include `low`, `medium`, `high`, and `max`.\n"
        "Now the system is invoked with `thinking_effort=high`."
    )

    def opened(tag: str, **attributes: str) -> list[str]:
        inside = [piece for key, value in attributes.items() for piece in (f" {key}", '="', value, '"')]
        return ["<|open|>", tag, *inside, "<|sep|>"]

    def closed(tag: str) -> list[str]:
        return ["<|close|>", tag, "<|sep|>"]

    end = [*closed("message"), "<|end_of_msg|>"]
    pieces = [
        *[*opened("message", role="system", type="thinking-effort"), effort, *end],
        *[*opened("message", role="user"), "How is the weather?", *end],
        *[*opened("message", role="assistant"), *opened("think"), "I look.", *closed("think")],
        *[*opened("response"), *closed("response"), *opened("tools"), *opened("call", tool="get_weather", index="1")],
        *[*opened("argument", key="city", type="string"), "São Paulo", *closed("argument")],
        *[*closed("call"), *closed("tools"), *end],
        *[*opened("message", role="tool", tool="get_weather", index="1"), "22 °C", *end],
        *[*opened("message", role="assistant"), *opened("think")],
    ]
    assert render_prompt(request) == "".join(pieces)
    true = splintr.Tokenizer.from_pretrained("kimi_k3")
    expected = sum(1 if piece.startswith("<|") else len(true.encode_ordinary(piece)) for piece in pieces)
    assert kimi.count_prompt(request) == expected


QUESTION: Final = "北京是首都吗, 请用 JSON 回答。"
SCHEMA: Final = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}


def test_moonshot_does_not_count_the_start_of_the_answer_of_k3(kimi: Tokenizer) -> None:
    """Moonshot's tests for other hosts (k3_features, prompt_tokens): 99 tokens for one greeting of the assistant with a
    high effort, 18 around the text of a user when thinking is
    disabled, and 78 around both this text and a schema."""
    counter = Counter(tokenizer=kimi)
    greeting = asked("kimi-k3", {"role": "assistant", "content": "你好"}, reasoning_effort="high")
    assert counter.count_prompt(greeting, renamed=True) == 99
    assert counter.count_prompt(greeting) == 102  # another host counts all that the model reads
    plain = asked("kimi-k3", {"role": "user", "content": QUESTION}, thinking={"type": "disabled"})
    assert counter.count_prompt(plain, renamed=True) == kimi.count(QUESTION, "k3") + 18
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    formatted = asked(
        "kimi-k3", {"role": "user", "content": QUESTION}, thinking={"type": "disabled"}, response_format=wanted
    )
    schema = json.dumps(SCHEMA, separators=(",", ":"), sort_keys=True)
    around = counter.count_prompt(formatted, renamed=True) - kimi.count(QUESTION, "k3") - kimi.count(schema, "k3")
    assert around == 78
    begun = asked("kimi-k3", {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "{", "partial": True})
    assert counter.count_prompt(begun, renamed=True) == counter.count_prompt(begun)
    old = asked("kimi-k2.6", {"role": "user", "content": "Hi"})
    assert counter.count_prompt(old, renamed=True) == counter.count_prompt(old)


# --- the simulator ------------------------------------------------------------------------------------------------


class Caller:
    """A model that thinks, speaks and calls."""

    def reply(self, request: SimRequest, /) -> IntendedResponse:
        return IntendedResponse(reasoning="user", text="ab ab", calls=(IntendedCall("ab", "{}"),))


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[Simulator]:
    with Simulator(model=Caller(), tokenizer=file, assume=("counts-tokens",)).running() as running_server:
        yield running_server


SYSTEM_TOKENS: Final = 3 + len("system") + len("You are Kimi, an AI assistant created by Moonshot AI.") - 3
"""Three markers; ` a` occurs three times."""
PROMPT_TOKENS: Final = SYSTEM_TOKENS + (3 + 1 + 4) + (2 + len("assistant") + 1)
"""Of `HELLO` for K2.5. `user` is one token, `Hi ab` four; the prompt ends with `<think>`."""
CALL_TOKENS: Final = 5 + len("functions.ab:0") - 1 + len("{}")
COMPLETION_TOKENS: Final = 1 + 3 + CALL_TOKENS
"""The reasoning, the text, and the call with its five markers."""


def test_both_apis_report_the_tokens_whole_and_streamed(server: Simulator) -> None:
    chat = OpenAI(base_url=f"{server.url}/v1", api_key="any")
    claude = Anthropic(base_url=server.url, api_key="any")
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    whole = chat.chat.completions.create(model="kimi-k2.5", messages=HELLO)
    stream = chat.chat.completions.create(
        model="kimi-k2.5", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    message: Any = {"model": "kimi-k2.5", "max_tokens": 2000, "messages": HELLO, "thinking": thinking}
    with claude.messages.stream(**message) as events:
        streamed = events.get_final_message()
    usages = [whole.usage, [chunk.usage for chunk in stream][-1]]
    counted = [(usage.prompt_tokens, usage.completion_tokens) for usage in usages if usage]
    counted += [
        (one.usage.input_tokens, one.usage.output_tokens) for one in (claude.messages.create(**message), streamed)
    ]
    assert counted == [(PROMPT_TOKENS, COMPLETION_TOKENS)] * 4
    assert claude.messages.count_tokens(model="kimi-k2.5", messages=HELLO).input_tokens == PROMPT_TOKENS


def test_the_three_dialects_of_the_gateway_report_the_same_tokens(server: Simulator) -> None:
    provider = ProviderConfig(
        name="host", api_base_url=f"{server.url}/v1", models=("kimi-k2.5",), host="moonshot", keys=(Secret("sk-host"),)
    )

    async def ask() -> list[tuple[int, int]]:
        async with running(Config(providers=(provider,))) as gateway, gateway.openai() as openai:
            chat = (await openai.chat.completions.create(model="kimi-k2.5", messages=HELLO)).usage
            responses = (await openai.responses.create(model="kimi-k2.5", input="Hi ab")).usage
            async with gateway.anthropic() as claude:
                message = await claude.messages.create(
                    model="kimi-k2.5",
                    max_tokens=2000,
                    messages=HELLO,
                    thinking={"type": "enabled", "budget_tokens": 1024},
                )
        assert chat is not None
        assert responses is not None
        return [
            (chat.prompt_tokens, chat.completion_tokens),
            (responses.input_tokens, responses.output_tokens),
            (message.usage.input_tokens, message.usage.output_tokens),
        ]

    assert run(ask()) == [(PROMPT_TOKENS, COMPLETION_TOKENS)] * 3


def test_cached_tokens_are_a_part_of_the_prompt_in_both_apis(server: Simulator) -> None:
    long: Any = [{"role": "user", "content": "What is in ab, and who is the user of it? " * 50}]
    chat = OpenAI(base_url=f"{server.url}/v1", api_key="any")
    usages = [chat.chat.completions.create(model="kimi-k2.6", messages=long).usage for _ in range(2)]
    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages if usage and usage.prompt_tokens_details]
    first, second = (usage.prompt_tokens for usage in usages if usage)
    assert first == second
    assert cached[0] == 0
    assert cached[1] is not None
    assert cached[1] % BLOCK == 0
    assert second / 2 < cached[1] <= second
    used = (
        Anthropic(base_url=server.url, api_key="any")
        .messages.create(
            model="kimi-k2.6", max_tokens=2000, messages=long, thinking={"type": "enabled", "budget_tokens": 1024}
        )
        .usage
    )
    assert used.cache_read_input_tokens == cached[1]
    assert used.input_tokens + cached[1] == second


@pytest.mark.parametrize("model", ["kimi-k3.1-pro", "plain-1"])
def test_a_model_without_a_public_vocabulary_is_estimated(model: str, server: Simulator) -> None:
    usage = (
        OpenAI(base_url=f"{server.url}/v1", api_key="any").chat.completions.create(model=model, messages=HELLO).usage
    )
    assert usage is not None
    begun = 3 if model.startswith("kimi") else 0  # Moonshot does not count the start of the answer
    assert usage.prompt_tokens == tokens_of(render_prompt(asked(model, *HELLO))) - begun


def test_without_a_tokenizer_every_model_is_estimated() -> None:
    request = asked("kimi-k2.5", *HELLO)
    tally = Counter().tally(request, IntendedResponse(text="ab ab"))
    assert (tally.prompt, tally.completion) == (tokens_of(render_prompt(request)), tokens_of("ab ab"))


# --- files --------------------------------------------------------------------------------------------------------


def test_a_folder_and_its_file_are_the_same(file: Path) -> None:
    assert load_tokenizer(str(file)) is load_tokenizer(str(file.parent))


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    assert load_tokenizer(str(write_vocabulary(tmp_path, []))).count("user", "k2") == 4
    assert load_tokenizer(str(write_vocabulary(tmp_path))).count("user", "k2") == 1


def cut_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], lines[-1][:-2]]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda lines: [], "tokens are missing"),
        (lambda lines: lines[:200], "tokens are missing"),
        (lambda lines: [*lines[:99], *lines[100:]], "tokens are missing"),
        (lambda lines: [*lines, lines[-1]], "tokens are missing"),
        (cut_line, "tokens are missing"),
        (lambda lines: [*lines[:-1], lines[-1].split()[0]], "line 269"),
        (lambda lines: [lines[0], b"not=base64 1", *lines[2:]], "line 2"),
        (lambda lines: [lines[0], b"AQ== one", *lines[2:]], "line 2"),
        (lambda lines: [b"version https://git-lfs.github.com/spec/v1", b"size 2795286"], "line 1"),
        (lambda lines: [b"\x80\x00\xff" * 99], "line 1"),
    ],
)
def test_a_damaged_file_is_one_sentence(
    damage: Callable[[list[bytes]], list[bytes]], told: str, file: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "tiktoken.model"
    bad.write_bytes(b"\n".join(damage(file.read_bytes().splitlines())))
    with pytest.raises(TokenizerError) as caught:
        Simulator(tokenizer=tmp_path)
    assert str(caught.value) == f"{bad} is damaged or not a vocabulary (`tiktoken.model`): {told}"


def test_a_path_that_leads_nowhere_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, named in (
        (tmp_path / "none", tmp_path / "none"),
        (tmp_path / "folder", tmp_path / "folder" / "tiktoken.model"),
    ):
        with pytest.raises(TokenizerError) as caught:
            load_tokenizer(str(path))
        assert str(caught.value) == f"cannot read the vocabulary {named}: No such file or directory"
    for wrong, why in (("a\0b", "embedded null"), ("~no-such-user-here/model", "home directory")):
        with pytest.raises(TokenizerError, match=why):
            load_tokenizer(wrong)


def test_what_is_not_a_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.touch()
    os.truncate(weights, 2**30)
    for path in (weights, Path(os.devnull)):
        with pytest.raises(TokenizerError, match="is not a vocabulary"):
            load_tokenizer(str(path))


def test_without_the_package_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(TokenizerError, match=r'needs the package tiktoken.*pip install "\.\[tokenizer\]"'):
        load_tokenizer(str(write_vocabulary(tmp_path)))


def test_a_path_in_a_settings_file_starts_at_its_folder(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write_vocabulary(model)
    settings = tmp_path / "simulator.toml"
    settings.write_text('tokenizer = "model"\n')
    assert load_settings(settings, {}).tokenizer == str(model)
