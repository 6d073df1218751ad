"""`moonshim chat`: arguments -> a conversation on this terminal, or one answer for a script."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moonshim.chat.efforts import EFFORTS, WAYS_TO_THINK
from moonshim.cli import console, numbers
from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.chat.setup import ChatOptions

__all__ = ["main", "parser"]

_NEEDED: Final = ("prompt_toolkit", "rich", "aiohttp")
_NEEDED_BY_DEMO: Final = ("uvicorn", "httptools", "structlog")
_TERMINATED: Final = 143
"""128 plus SIGTERM."""
_USAGE: Final = """moonshim chat [--model NAME] [--provider NAME] [--resume [ID]] [--folder DIR] [--yolo] …
       moonshim chat -p PROMPT [--output text|json|stream-json] …"""
_EPILOG: Final = """\
in the chat:
  /help lists the commands and keys. Ctrl-C stops an answer, twice leaves; Ctrl-T shows or hides reasoning.

one answer for a script (-p):
  --output text         the answer as text; what went wrong is told on standard error
  --output json         one object: text, reasoning, calls, usage, cost, ending, detail, rounds, repairs, …
  --output stream-json  a line for every step, as it happens; the last one is of type run_ended
  Nobody can be asked: tools that write or run commands are refused, unless --allow or --yolo allows them.

exit codes:
  0    the model answered; or somebody left the chat
  1    the host failed
  2    the command was not understood, or nothing is configured
  3    stopped: too many rounds, or the same call with the same result again and again
  130  interrupted

examples:
  moonshim chat                                     with what is configured, or with the keys in the environment
  moonshim chat --demo                              with the simulator: no key, and no model
  moonshim chat --base-url http://127.0.0.1:8000/v1 --model kimi-k2.5
  moonshim chat --resume                            go on with the last conversation of this folder
  moonshim chat -p "What is in this folder?" --allow bash
  git diff | moonshim chat -p - --output json"""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim chat`; return the exit code."""
    command = parser()
    given = command.parse_args(list(argv))
    _check(command, given)
    needed = (*_NEEDED, *_NEEDED_BY_DEMO) if given.demo else _NEEDED
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        console.print_note(
            f"moonshim chat: the chat needs more than the engine does ({', '.join(missing)}):\n"
            '  pip install "moonshim[chat]"   or, in a checkout: pip install ".[chat]"'
        )
        return console.BAD_USAGE
    prompt = _prompt(command, given)
    from moonshim.agent.toolbox.process_environment import forbid_inspection

    forbid_inspection()
    try:
        options = _read_options(given, paced=prompt is None)
        return asyncio.run(_chat(options) if prompt is None else _answer(options, prompt, given.output))
    except MoonshimError as error:
        _print_error(str(error))
        return console.BAD_USAGE


async def _chat(options: ChatOptions) -> int:
    from moonshim.chat.terminal.app import chat

    task = asyncio.current_task()
    assert task is not None
    ended: list[int] = []

    def end() -> None:
        ended.append(1)
        task.cancel()

    # The terminal must be restored if the chat ends in the middle of a response.
    for name in ("SIGTERM", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None and sys.platform != "win32":
            asyncio.get_running_loop().add_signal_handler(number, end)
    try:
        return await chat(options, os.environ)
    except asyncio.CancelledError:
        if ended:
            return _TERMINATED
        raise


async def _answer(options: ChatOptions, prompt: str, output: Any) -> int:
    from moonshim.chat.oneshot import answer_once
    from moonshim.chat.setup import open_session

    async with open_session(options, os.environ) as session:
        if sys.platform != "win32":
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, session.agent.stop)
        for note in session.notes:
            _print_error(note)
        return await answer_once(session, prompt, output, write=_write, tell=_print_error)


def _write(text: str) -> None:
    print(text, end="", flush=True)


def _print_error(text: str) -> None:
    console.print_note("moonshim chat: " + "\n".join(console.safe(line) for line in text.split("\n")))


# -- options ---------------------------------------------------------------------------------------------------------


def _check(command: console.Parser, given: Any) -> None:
    if given.words:
        command.error('a prompt comes behind -p, in quotes: moonshim chat -p "What is here?"; or type it in the chat')
    if given.demo and (given.config is not None or given.base_url is not None):
        command.error("--demo talks to the simulator: --config and --base-url have no place beside it")
    if given.base_url is not None and (given.config is not None or given.provider is not None):
        command.error("--base-url is the whole provider: --config and --provider have no place beside it")
    if given.key_env is not None and given.base_url is None:
        command.error("--key-env belongs to --base-url; the configuration says where its own keys are")


def _prompt(command: console.Parser, given: Any) -> str | None:
    """The prompt; None: it will be typed."""
    if given.prompt is None:
        if sys.stdin is not None and sys.stdin.isatty():
            if sys.stdout is not None and sys.stdout.isatty():
                if given.output != "text":
                    command.error(f"--output {given.output} is for -p")
                return None
            command.error("standard output is no terminal: -p PROMPT gives one answer, for scripts")
        given.prompt = "-"
    prompt: str = given.prompt
    if prompt == "-":
        prompt = _standard_input(command)
    if not prompt.strip():
        command.error("there is nothing to ask: the prompt is empty")
    return prompt


def _standard_input(command: console.Parser) -> str:
    if sys.stdin is None:
        command.error("there is no standard input to read the prompt from")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _read_options(given: Any, *, paced: bool) -> ChatOptions:
    from moonshim.chat.session import ChatSettings
    from moonshim.chat.setup import ChatOptions

    return ChatOptions(
        model=given.model,
        provider=given.provider,
        base_url=given.base_url,
        key_env=given.key_env,
        config=given.config,
        resume=given.resume,
        folder=Path(given.folder).expanduser().absolute(),
        outside=given.outside,
        demo=given.demo,
        yolo=given.yolo,
        allow=tuple(given.allow),
        pass_env=tuple(given.pass_env),
        setting=ChatSettings(
            thinking=given.thinking,
            tool_format=given.tool_format,
            system=given.system,
            rounds=given.rounds,
            repeats=given.repeats,
        ),
        paced=paced,
    )


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim chat",
        usage=_USAGE,
        description="Chat with a model that has tools: bash, read_file, write_file, edit_file, glob and grep. Files\n"
        "outside of the folder are out of their reach, and somebody is asked before anything is written or\n"
        "run. Providers are those of the gateway: its configuration, or keys in the environment.",
        epilog=_EPILOG,
    )
    add = made.add_argument
    add("words", nargs="*", help=SUPPRESS)  # avoids an error about "unrecognized arguments" for a prompt
    add("-p", "--prompt", metavar="PROMPT", help="give one answer and end; - reads the prompt from standard input")
    add("--output", choices=("text", "json", "stream-json"), default="text", help="what -p writes (default: text)")
    add("--model", metavar="NAME", help="a model, an alias, or provider/model")
    add("--provider", metavar="NAME", help="a provider of the configuration")
    add("--base-url", metavar="URL", help="the address of any host; needs --model")
    add("--key-env", metavar="NAME", help="the environment variable with the key for --base-url")
    add(
        "--config", metavar="FILE", help="the configuration; if not given: MOONSHIM_CONFIG, ./moonshim.toml or .json, …"
    )
    add("--demo", action="store_true", help="chat with the simulator, which is no model; configuration is not read")
    add(
        "--resume",
        metavar="ID",
        nargs="?",
        const="last",
        help="go on with a conversation; without ID: the last of this folder",
    )
    add("--folder", metavar="DIR", default=".", help="where the tools work (default: the current folder)")
    add("--outside", action="store_true", help="tools may leave that folder")
    add("--yolo", action="store_true", help="never ask before something is written or run")
    add("--allow", metavar="TOOL", action="append", default=[], help="never ask for this tool; may be repeated")
    add(
        "--pass-env",
        metavar="NAME",
        action="append",
        default=[],
        help="give commands this variable although it is named like a secret (GH_TOKEN); may be repeated",
    )
    add(
        "--thinking",
        metavar="HOW",
        type=str.lower,
        choices=WAYS_TO_THINK,
        help=f"on, off, or an effort: {', '.join(EFFORTS)}",
    )
    add("--tool-format", metavar="NAME", help="how the model is told of tools (default: by its name)")
    add("--system", metavar="TEXT", help="another system prompt; empty: none")
    add(
        "--rounds",
        metavar="N",
        type=_rounds,
        default=50,
        help="how often the model is asked for one prompt; -1: no bound",
    )
    add(
        "--repeats",
        metavar="N",
        type=lambda text: numbers.integer(text, "how many repeats (0: no limit)", 0, 1_000_000),
        default=4,
        help="how often the same call may give the same result in a row; 0: no limit",
    )
    return made


def _rounds(text: str) -> int:
    return -1 if text.strip() == "-1" else numbers.integer(text, "how many rounds (-1: no bound)", 1, 1_000_000)
