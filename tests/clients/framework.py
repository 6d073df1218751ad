"""The agent frameworks, the dialects of each, and the faults that each is run with."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from tests.clients.cases import Case
from tests.clients.client import Dialect

__all__ = ["FRAMEWORKS", "FRAMEWORK_CASES", "Framework", "Mode", "Way"]

Mode: TypeAlias = Literal["streamed", "whole"]
_BOTH: Final[tuple[Mode, ...]] = ("streamed", "whole")


class Way(Struct, frozen=True):
    """How a framework asks."""

    dialect: Dialect
    mode: Mode


class Framework(Struct, frozen=True, kw_only=True):
    """One framework; `run_<name>.py` drives it, and `frameworks.toml` has its packages."""

    name: str
    ways: tuple[Way, ...]
    unable: dict[tuple[Way, str], str] = {}
    """A way and the name of a case that the framework cannot read from any server, and why; the table shows it."""


def _framework(name: str, unable: dict[tuple[Way, str], str] | None = None, **modes: tuple[Mode, ...]) -> Framework:
    dialects: tuple[Dialect, ...] = ("chat", "messages", "responses")
    ways = tuple(Way(dialect, mode) for dialect in dialects for mode in modes.get(dialect, ()))
    return Framework(name=name, ways=ways, unable=unable or {})


FRAMEWORKS: Final = (
    _framework("agno", chat=_BOTH, messages=_BOTH, responses=_BOTH),
    _framework("openai-agents", chat=_BOTH, responses=_BOTH),
    _framework("smolagents", chat=_BOTH, messages=_BOTH),  # Messages through LiteLLM
    # Streamed Responses: crewai 1.15 drops the calls of such an answer, whoever sends it.
    _framework("crewai", chat=_BOTH, messages=_BOTH, responses=("whole",)),
    _framework("google-adk", chat=_BOTH, messages=_BOTH, responses=_BOTH),  # through LiteLLM
    _framework("strands", chat=_BOTH, messages=("streamed",), responses=("streamed",)),
    _framework("haystack", chat=_BOTH, messages=_BOTH, responses=_BOTH),
    _framework("semantic-kernel", chat=_BOTH, messages=_BOTH, responses=_BOTH),
    _framework(  # its Messages client takes names of Claude models only
        "llama-index",
        unable={(Way("chat", "streamed"), "interleaved"): "it begins a new call wherever the index changes"},
        chat=_BOTH,
        responses=_BOTH,
    ),
    _framework("ag2", chat=_BOTH, messages=_BOTH, responses=_BOTH),
)


def _at_vllm(name: str, *faults: str) -> Case:
    return Case(name=name, model="kimi-k2.5", behaviour="vllm", host="vllm", faults=faults)


FRAMEWORK_CASES: Final = (
    Case(name="clean", model="kimi-k2.5", behaviour="selfhost"),
    Case(name="content", model="kimi-k2.5", behaviour="selfhost", faults=("markers-in-content", "split-bytes")),
    Case(name="reasoning", model="kimi-k2.6", behaviour="vllm", host="vllm", faults=("markers-in-reasoning",)),
    Case(name="k3", model="kimi-k3", behaviour="sglang", host="sglang", faults=("xtml-in-content", "uneven-writes")),
    Case(name="moonshot", model="kimi-k3", behaviour="moonshot", host="moonshot"),
    _at_vllm("doubled", "arguments-twice"),
    _at_vllm("doubled-shared-index", "arguments-twice", "shared-index"),
    _at_vllm("interleaved", "interleaved-calls"),
    _at_vllm("no-index", "missing-index", "in-lumps"),
    _at_vllm("no-ids", "ids-missing"),
    _at_vllm("same-ids", "ids-same", "by-character"),
    _at_vllm("encoded-twice", "arguments-encoded-twice", "repeated-header"),
    _at_vllm("twice", "markers-and-native", "stop-with-calls"),
    Case(
        name="messages",
        model="kimi-k2.5",
        behaviour="moonshot",
        host="moonshot-anthropic",
        faults=("markers-in-content",),
        path="/anthropic",
        dialect="anthropic",
    ),
)
