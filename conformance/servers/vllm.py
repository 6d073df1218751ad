"""A real vLLM on a machine without a GPU, whose model writes the text that the prompt asks for.

    python -m conformance.servers.vllm k2                          serve, with vLLM's own parsers for K2
    python -m conformance.servers.vllm k3 --reasoning-parser ""    without a reasoning parser
    python -m conformance.servers.vllm k2 --write "Hm.</think>Hi"  the user message after which the model writes this

The front end, the parsers, the detokenizer and the streaming are vLLM's own. Only the weights are made up: a logits
processor forces the tokens of the text that the user message contains (`prompt_for`).
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from conformance.servers.installation import PROGRAMS, VERSION, install_rust_front_end, install_vllm
from scripts.environment import CannotSetUp
from tests.support.model_outputs import GENERATIONS, Generation

__all__ = ["FRONT_ENDS", "MODELS", "FrontEnd", "ServerFailed", "VllmSettings", "prompt_for", "serving"]

FrontEnd: TypeAlias = Literal["python", "rust"]
FRONT_ENDS: Final[tuple[FrontEnd, ...]] = get_args(FrontEnd)

MODELS: Final[dict[Generation, str]] = {"k2": "kimi-k2.6", "k3": "kimi-k3"}
"""Served under these names, in which a gateway recognizes the generation."""
_PARSERS: Final[dict[Generation, str]] = {"k2": "kimi_k2", "k3": "kimi_k3"}
"""vLLM's own tool call parser and reasoning parser."""
_START_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.25
_SHOWN_LINES: Final = 25
"""Of the log of a server that did not start."""
_ENVIRONMENT: Final = {
    "PYTHONPATH": str(PROGRAMS),
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; a token takes 1 KiB
}


class ServerFailed(Exception):
    """The server ended or did not answer."""


class VllmSettings(Struct, frozen=True, kw_only=True):
    """How the server is started. A parser of `""` is left out; None is vLLM's own parser for the generation."""

    generation: Generation
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    front_end: FrontEnd = "python"
    context: int = 131_072
    flags: tuple[str, ...] = ()

    @property
    def parsers(self) -> tuple[str, str]:
        """The names of the tool call parser and of the reasoning parser."""
        own = _PARSERS[self.generation]
        calls, reasoning = self.tool_call_parser, self.reasoning_parser
        return own if calls is None else calls, own if reasoning is None else reasoning

    def describe(self) -> str:
        calls, reasoning = self.parsers
        return (
            f"vLLM {VERSION} ({self.front_end} front end), tool call parser {calls or 'none'}, "
            f"reasoning parser {reasoning or 'none'}"
        )


def prompt_for(*texts: str) -> str:
    """A user message after which the model writes the first text, after the first result of a tool the second, …"""
    return "SCRIPT:" + ",".join(text.encode().hex() for text in texts)


@contextmanager
def serving(settings: VllmSettings) -> Iterator[str]:
    """The base URL, ending in `/v1`, of a server that is up; it is stopped at the end."""
    installed = install_vllm()
    port = _free_port()
    command = [
        str(installed.python),
        *("-m", "vllm.entrypoints.cli.main", "serve", str(installed.model(settings.generation))),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODELS[settings.generation]),
        *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(settings.context), "--logits-processors", "scripted:Scripted"),
        *_parser_flags(settings),
        *settings.flags,
    ]
    with tempfile.TemporaryFile() as log:
        _say(f"starting {settings.describe()}, model {MODELS[settings.generation]}")
        begun = time.monotonic()
        process = subprocess.Popen(
            command,
            env={**os.environ, **_ENVIRONMENT, **_front_end(settings.front_end)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_up(process, url)
            _say(f"up at {url}/v1 after {time.monotonic() - begun:.0f} s")
            yield f"{url}/v1"
            if process.poll() is not None:
                raise ServerFailed(f"vLLM ended with exit code {process.returncode} while it was in use.")
        except ServerFailed as error:
            raise ServerFailed(f"{error} The end of its log:\n{_end_of(log.fileno())}") from error
        finally:
            _stop(process)


def _parser_flags(settings: VllmSettings) -> list[str]:
    calls, reasoning = settings.parsers
    flags = ["--enable-auto-tool-choice", "--tool-call-parser", calls] if calls else []
    return flags + (["--reasoning-parser", reasoning] if reasoning else [])


def _front_end(front_end: FrontEnd) -> dict[str, str]:
    if front_end == "python":
        return {"VLLM_USE_RUST_FRONTEND": "0"}
    return {"VLLM_USE_RUST_FRONTEND": "1", "VLLM_RUST_FRONTEND_PATH": str(install_rust_front_end())}


def _wait_until_up(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerFailed(f"vLLM ended with exit code {process.returncode} before it was up.")
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return
        time.sleep(_POLL_SECONDS)
    raise ServerFailed(f"vLLM was not up after {_START_SECONDS:.0f} s.")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process group, which has the server's own workers in it."""
    for number, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
        # The group exists as long as one of its processes does, also after the first one ended.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def _end_of(log: int) -> str:
    size = os.fstat(log).st_size
    text = os.pread(log, 100_000, max(0, size - 100_000)).decode(errors="replace")
    return "\n".join(text.splitlines()[-_SHOWN_LINES:])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _say(text: str) -> None:
    print(f"vllm: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m conformance.servers.vllm", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("generation", choices=GENERATIONS)
    parser.add_argument("--tool-call-parser", help='default: vLLM\'s own; "": none')
    parser.add_argument("--reasoning-parser", help='default: vLLM\'s own; "": none')
    parser.add_argument("--front-end", choices=FRONT_ENDS, default="python", help="default: %(default)s")
    parser.add_argument(
        "--write",
        metavar="TEXT",
        nargs="+",
        help="print a user message that makes the model write TEXT (one for each round), and exit",
    )
    parser.add_argument("flags", nargs="*", help="further flags of vLLM, after --")
    given = parser.parse_args(arguments)
    if given.write is not None:
        print(prompt_for(*given.write))
        return 0
    settings = VllmSettings(
        generation=given.generation,
        tool_call_parser=given.tool_call_parser,
        reasoning_parser=given.reasoning_parser,
        front_end=given.front_end,
        flags=tuple(given.flags),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serving(settings) as url:
            print(url, flush=True)
            signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the next line when the server ends by itself
            signal.pause()
    except KeyboardInterrupt:
        _say("stopped")
        return 0
    except (CannotSetUp, ServerFailed) as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
