"""Model outputs -> what a client gets of them from a real vLLM, alone and behind the gateway: `make test-servers`.

Every output is sent as a script to the server, once directly and once through `moonshim serve`, and read with the
official openai SDK. The tables count, by server and by deviation, the responses that are right, end in an error, lost a
call or contain a wrong one (`tests/support/model_outputs`).
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import msgspec
import openai
from msgspec import Struct
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from conformance.servers.vllm import FRONT_ENDS, MODELS, FrontEnd, ServerFailed, VllmSettings, prompt_for, serving
from scripts.environment import CannotSetUp
from tests.support.model_outputs import (
    DEVIATIONS,
    GENERATIONS,
    VERDICTS,
    Generation,
    ModelOutput,
    Received,
    Verdict,
    model_outputs,
    verdict,
)
from tests.support.servers import running

Json: TypeAlias = dict[str, Any]

DEFAULT_NUMBER: Final = 60
_IN_PARALLEL: Final = 4
_TIMEOUT: Final = 120.0
_STEP: Final = 20
"""Outputs between two lines of progress."""
_CONFIGURATION: Final = """
[[providers]]
name = "vllm"
api_base_url = "{url}"
host = "vllm"
models = ["{model}"]
"""


class Response(Struct, frozen=True, kw_only=True):
    """What a server sent for one output, and what it means."""

    received: Received
    verdict: Verdict
    deltas: list[Json | list[str]]
    """Of the chunks, or the message as one delta. An error is `["error", message]`, last."""
    tokens: int | None
    """Completion tokens in the usage."""


class Measured(Struct, frozen=True, kw_only=True):
    """One output at both servers."""

    output: ModelOutput
    alone: Response
    gateway: Response


class Failure(Struct, frozen=True, kw_only=True):
    """One line of the file of failures: a response of the server from which the gateway did not make the right one."""

    parser: str
    """Whose, in which front end of the server."""
    host: str = "vllm"
    k3: bool
    fault: str
    tools: list[str]
    calls: list[tuple[str, Json]]
    model_output: str
    deltas: list[Json | list[str]]
    """What the server sent without the gateway; `finish` and `tokens` too."""
    finish: str | None
    tokens: int | None
    alone: Verdict
    verdict: Verdict
    """Of the response of the gateway; `received` is what its client has."""
    received: Received
    output: ModelOutput
    """Everything that was meant, with the definitions of the tools."""


# --- asking -----------------------------------------------------------------------------------------------------


class Client:
    """The official SDK at one server. Asks once: a retry would hide what the first response was."""

    def __init__(self, url: str, generation: Generation, *, streamed: bool) -> None:
        self._sdk = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=_TIMEOUT)
        self._model = MODELS[generation]
        self._streamed = streamed

    def ask(self, output: ModelOutput) -> Response:
        deltas: list[Json | list[str]] = []
        finish: str | None = None
        tokens: int | None = None
        error: str | None = None
        ask = self._stream if self._streamed else self._whole
        try:
            for piece in ask(output):
                tokens = piece.tokens or tokens
                finish = piece.finish or finish
                if piece.delta is not None:
                    deltas.append(piece.delta)
        except (openai.OpenAIError, httpx.HTTPError) as raised:
            error = str(raised) or type(raised).__name__
            deltas.append(["error", error])
        received = Received(calls=tuple(_calls(deltas)), finish=finish, error=error)
        return Response(received=received, verdict=verdict(output, received), deltas=deltas, tokens=tokens)

    def _stream(self, output: ModelOutput) -> Iterator[_Piece]:
        stream = self._sdk.chat.completions.create(
            model=self._model,
            messages=_messages(output),
            tools=_tools(output),
            stream=True,
            stream_options={"include_usage": True},
        )
        with stream:
            for chunk in stream:
                tokens = chunk.usage.completion_tokens if chunk.usage else None
                if not chunk.choices:
                    yield _Piece(tokens=tokens)
                for choice in chunk.choices:
                    delta = choice.delta.model_dump(mode="json", exclude_unset=True, warnings=False)
                    yield _Piece(delta=delta, finish=choice.finish_reason, tokens=tokens)

    def _whole(self, output: ModelOutput) -> Iterator[_Piece]:
        response = self._sdk.chat.completions.create(
            model=self._model, messages=_messages(output), tools=_tools(output)
        )
        [choice] = response.choices
        message = choice.message.model_dump(mode="json", exclude_unset=True, warnings=False)
        calls = message.get("tool_calls") or ()
        message["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
        tokens = response.usage.completion_tokens if response.usage else None
        yield _Piece(delta=message, finish=choice.finish_reason, tokens=tokens)


class _Piece(Struct, frozen=True, kw_only=True):
    """A chunk, as far as it matters here."""

    delta: Json | None = None
    finish: str | None = None
    tokens: int | None = None


def _messages(output: ModelOutput) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": prompt_for(output.output)}]


def _tools(output: ModelOutput) -> list[ChatCompletionToolParam]:
    return msgspec.convert([tool.definition() for tool in output.tools], list[Any])


def _calls(deltas: Iterable[Json | list[str]]) -> list[tuple[str, str]]:
    """The calls, joined by index, as clients do."""
    joined: dict[int, list[str]] = {}
    for delta in deltas:
        for call in (delta.get("tool_calls") or ()) if isinstance(delta, dict) else ():
            parts = joined.setdefault(call.get("index", 0), ["", ""])
            function = call.get("function") or {}
            parts[0] += function.get("name") or ""
            parts[1] += function.get("arguments") or ""
    return [(name, arguments) for name, arguments in joined.values()]


@contextmanager
def serving_gateway(url: str, generation: Generation) -> Iterator[str]:
    """`moonshim serve` of this checkout, in front of the server."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "moonshim.toml"
        file.write_text(_CONFIGURATION.format(url=url, model=MODELS[generation]))
        with running("serve", "--config", file, cwd=Path(folder)) as gateway:
            yield f"{gateway.url}/v1"


def measure(settings: VllmSettings, outputs: Sequence[ModelOutput], *, streamed: bool) -> list[Measured]:
    """Start the servers, send every output to both, and stop them."""
    measured: list[Measured] = []
    with serving(settings) as url, serving_gateway(url, settings.generation) as gateway_url:
        alone = Client(url, settings.generation, streamed=streamed)
        gateway = Client(gateway_url, settings.generation, streamed=streamed)

        def send(output: ModelOutput) -> Measured:
            return Measured(output=output, alone=alone.ask(output), gateway=gateway.ask(output))

        with ThreadPoolExecutor(_IN_PARALLEL) as pool:
            for one in pool.map(send, outputs):
                measured.append(one)
                if len(measured) % _STEP == 0 or len(measured) == len(outputs):
                    print(f"{len(measured)} of {len(outputs)} outputs", file=sys.stderr, flush=True)
    return measured


# --- reporting --------------------------------------------------------------------------------------------------

_SIDES: Final[dict[str, Callable[[Measured], Response]]] = {
    "vLLM alone": lambda one: one.alone,
    "with Moonshim": lambda one: one.gateway,
}
_COLUMN: Final = 7
_SIDE: Final = _COLUMN * len(VERDICTS)


def report(title: str, measured: Sequence[Measured]) -> str:
    """The table by server and by deviation, and the errors."""
    lines = [title, ""]
    width = max(len(name) for name in ("all malformed", *(one.output.deviation for one in measured)))
    lines.append(f"{'':{width}}      " + "  ".join(f"{name:>{_SIDE}}" for name in _SIDES))
    lines.append(f"{'':{width}}     n" + "  ".join("".join(f"{name:>{_COLUMN}}" for name in VERDICTS) for _ in _SIDES))
    names = sorted({one.output.deviation for one in measured})
    lines += [_row(name, [one for one in measured if one.output.deviation == name], width) for name in names]
    lines.append(_row("all malformed", [one for one in measured if not _is_clean(one)], width))
    lines.append(_row("all", measured, width))
    for name, side in _SIDES.items():
        messages = Counter(
            side(one).received.error or "finish length" for one in measured if side(one).verdict == "error"
        )
        lines += [f"{name}, {count} x error: {message[:160]}" for message, count in messages.most_common(5)]
    return "\n".join(lines)


def _is_clean(one: Measured) -> bool:
    return one.output.deviation.startswith("clean")


def _row(name: str, measured: Sequence[Measured], width: int) -> str:
    counts = [Counter(side(one).verdict for one in measured) for side in _SIDES.values()]
    cells = ("".join(f"{count[verdict] or '.':>{_COLUMN}}" for verdict in VERDICTS) for count in counts)
    return f"{name:{width}} {len(measured):5}" + "  ".join(cells)


def failure_of(one: Measured, parser: str) -> Failure:
    output = one.output
    return Failure(
        parser=parser,
        k3=output.generation == "k3",
        fault=output.deviation,
        tools=[tool.name for tool in output.tools],
        calls=[(call.name, call.arguments) for call in output.calls],
        model_output=output.output,
        deltas=one.alone.deltas,
        finish=one.alone.received.finish,
        tokens=one.alone.tokens,
        alone=one.alone.verdict,
        verdict=one.gateway.verdict,
        received=one.gateway.received,
        output=output,
    )


# --- command ----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also stops the servers
    generations: Sequence[Generation] = [given.generation] if given.generation else GENERATIONS
    front_end: FrontEnd = given.front_end
    failures: list[Failure] = []
    unclean = 0
    for generation in generations:
        settings = VllmSettings(
            generation=generation,
            tool_call_parser=given.tool_call_parser,
            reasoning_parser=given.reasoning_parser,
            front_end=front_end,
            flags=tuple(given.flags),
        )
        names = [name for name in DEVIATIONS[generation] if not given.deviation or given.deviation in name]
        outputs = model_outputs(generation, given.number, seed=given.seed, deviations=names)
        try:
            measured = measure(settings, outputs, streamed=not given.whole)
        except (CannotSetUp, ServerFailed) as error:
            print(f"test-servers: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("test-servers: stopped", file=sys.stderr)
            return 130
        form = "whole" if given.whole else "streamed"
        title = f"{MODELS[generation]}, {settings.describe()}, {form}, {len(outputs)} outputs, seed {given.seed}"
        print(f"\n{report(title, measured)}\n")
        parser = f"vllm-{front_end}-{generation}"
        failures += [failure_of(one, parser) for one in measured if one.gateway.verdict != "right"]
        unclean += sum(_is_clean(one) and one.gateway.verdict != "right" for one in measured)
    if given.failures:
        given.failures.write_bytes(msgspec.json.Encoder().encode_lines(failures))
        print(f"{len(failures)} responses that were not right are in {given.failures}")
    if unclean:
        print(f"{unclean} clean outputs were not right with Moonshim", file=sys.stderr)
    return 1 if unclean else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make test-servers", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("generation", nargs="?", choices=GENERATIONS, help="default: both")
    parser.add_argument("--number", type=int, default=DEFAULT_NUMBER, help="outputs for each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the outputs (default: %(default)s)")
    parser.add_argument("--deviation", metavar="TEXT", help="only deviations whose name contains TEXT")
    parser.add_argument("--whole", action="store_true", help="ask for whole responses instead of streams")
    parser.add_argument("--front-end", choices=FRONT_ENDS, default="python", help="of vLLM (default: %(default)s)")
    parser.add_argument("--tool-call-parser", help='of vLLM (default: its own for Kimi; "": none)')
    parser.add_argument("--reasoning-parser", help='of vLLM (default: its own for Kimi; "": none)')
    parser.add_argument(
        "--failures", type=Path, metavar="FILE", help="write responses that are not right, as JSON Lines"
    )
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="further flags of `vllm serve`, last")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
