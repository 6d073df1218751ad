"""`moonshim chat`: arguments -> a conversation on this terminal, or one answer for a script."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moonshim.chat.efforts import EFFORTS, WAYS_TO_THINK
from moonshim.cli import console, numbers
from moonshim.cli.suggest import suggest
from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.chat.setup import ChatOptions

__all__ = ["main", "parser"]

_NEEDED: Final = ("prompt_toolkit", "rich", "aiohappyeyeballs")
_NEEDED_BY_DEMO: Final = ("uvicorn", "httptools")
_TERMINATED: Final = 143
"""128 plus SIGTERM."""
_EPILOG: Final = """\
in the chat:
  /help lists the commands and keys. Ctrl-C stops an answer, twice leaves the
  chat. Ctrl-T shows or hides the reasoning.

output formats for -p:
  text         the answer; errors go to standard error
  json         one object: text, reasoning, calls, usage, cost, ending, detail,
               rounds, repairs, …
  stream-json  one line of JSON per step, as it happens; the last line has the
               type run_ended

With -p there is no confirmation prompt: tools that write files or run commands
are refused unless --allow or --yolo permits them.

examples:
  moonshim chat                        use your configuration or exported keys
  moonshim chat --demo                 use the simulator: no key, no model
  moonshim chat --base-url http://127.0.0.1:8000/v1 --model kimi-k3
  moonshim chat --resume               continue the last conversation here
  moonshim chat -p "What is in this folder?" --allow bash
  git diff | moonshim chat -p - --output json

exit codes:
  0    the model answered, or you left the chat
  1    the host failed
  2    invalid command line, or no configuration
  3    stopped: too many rounds, or the same call kept giving the same result
  130  interrupted"""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim chat`; return the exit code."""
    command = parser()
    given = command.parse_args(list(argv))
    _check(command, given)
    needed = (*_NEEDED, *_NEEDED_BY_DEMO) if given.demo else _NEEDED
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        console.print_note(
            f"moonshim chat: the chat needs packages that are not installed ({', '.join(missing)}):\n"
            '  pip install ".[chat]"   (in a checkout of Moonshim)'
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
        command.error(
            'unexpected argument; pass a prompt with -p, in quotes: moonshim chat -p "What is in this folder?"'
        )
    if given.demo and (given.config is not None or given.base_url is not None):
        command.error("--demo uses the simulator and cannot be combined with --config or --base-url")
    if given.base_url is not None and (given.config is not None or given.provider is not None):
        command.error("--base-url replaces the configuration and cannot be combined with --config or --provider")
    if given.key_env is not None and given.base_url is None:
        command.error("--key-env requires --base-url; the configuration sets the keys of its own providers")


def _prompt(command: console.Parser, given: Any) -> str | None:
    """The prompt; None: it will be typed."""
    if given.prompt is None:
        if sys.stdin is not None and sys.stdin.isatty():
            if sys.stdout is not None and sys.stdout.isatty():
                if given.output != "text":
                    command.error(f"--output {given.output} requires -p")
                return None
            command.error("standard output is not a terminal; use -p PROMPT to get one answer for a script")
        given.prompt = "-"
    prompt: str = given.prompt
    if prompt == "-":
        prompt = _standard_input(command)
    if not prompt.strip():
        empty = "standard input is empty; pass -p PROMPT, or pipe a prompt in"
        command.error(empty if given.prompt == "-" else "the prompt is empty")
    return prompt


def _standard_input(command: console.Parser) -> str:
    if sys.stdin is None:
        command.error("cannot read the prompt: standard input is closed")
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
        usage="moonshim chat [OPTIONS]\n       moonshim chat -p PROMPT [OPTIONS]",
        description="Chat with a model that has tools: bash, read_file, write_file, edit_file, glob\n"
        "and grep. The file tools only see the working folder. You confirm each write\n"
        "and each command before it runs. Providers come from the gateway's\n"
        "configuration, or from API keys in the environment.",
        epilog=_EPILOG,
    )
    made.add_argument("words", nargs="*", help=SUPPRESS)  # avoids an error about "unrecognized arguments" for a prompt
    _add_model_options(made)
    _add_tool_options(made)
    _add_conversation_options(made)
    return made


def _add_model_options(made: console.Parser) -> None:
    add = made.add_argument_group("model").add_argument
    add("--model", metavar="NAME", help="a model, an alias, or provider/model")
    add("--provider", metavar="NAME", help="a provider from the configuration")
    add("--base-url", metavar="URL", help="base URL of any host; requires --model")
    suggest(
        add("--key-env", metavar="NAME", help="environment variable that holds the API key for --base-url"),
        "variables",
    )
    suggest(
        add("--config", metavar="FILE", help="configuration file (default: same as `moonshim serve`)"),
        "files",
    )
    add("--demo", action="store_true", help="use the simulator: no model, no keys, no configuration")
    add(
        "--thinking",
        metavar="HOW",
        type=str.lower,
        choices=WAYS_TO_THINK,
        help=f"on, off, or an effort: {', '.join(EFFORTS)} (default: up to the model)",
    )
    suggest(
        add("--tool-format", metavar="NAME", help="how tools are described to the model (default: from its name)"),
        names=_tool_formats,
    )
    add("--system", metavar="TEXT", help='replace the system prompt ("": none)')


def _add_tool_options(made: console.Parser) -> None:
    add = made.add_argument_group("tools").add_argument
    suggest(
        add("--folder", metavar="DIR", default=".", help="working folder of the tools (default: the current folder)"),
        "folders",
    )
    add("--outside", action="store_true", help="let the file tools leave the working folder")
    suggest(
        add(
            "--allow",
            metavar="TOOL",
            action="append",
            default=[],
            help="run this tool without confirmation (repeatable)",
        ),
        names=_tool_names,
    )
    add("--yolo", action="store_true", help="run every tool without confirmation")
    suggest(
        add(
            "--pass-env",
            metavar="NAME",
            action="append",
            default=[],
            help="pass this variable to commands although its name looks like a secret, such as GH_TOKEN (repeatable)",
        ),
        "variables",
    )
    add(
        "--rounds",
        metavar="N",
        type=_rounds,
        default=50,
        help="maximum number of model requests per prompt (default: 50; -1: no limit)",
    )
    add(
        "--repeats",
        metavar="N",
        type=lambda text: numbers.integer(text, 0, 1_000_000),
        default=4,
        help="how many times in a row the same call may give the same result (default: 4; 0: no limit)",
    )


def _add_conversation_options(made: console.Parser) -> None:
    add = made.add_argument_group("conversation").add_argument
    add(
        "--resume",
        metavar="ID",
        nargs="?",
        const="last",
        help="continue a conversation (default ID: the last one of this folder)",
    )
    add("-p", "--prompt", metavar="PROMPT", help="print one answer and exit; - reads the prompt from standard input")
    add("--output", choices=("text", "json", "stream-json"), default="text", help="output of -p (default: text)")


def _rounds(text: str) -> int:
    if text.strip() == "-1":
        return -1
    try:
        return numbers.integer(text, 1, 1_000_000)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error} (-1: no limit)") from None


def _tool_formats() -> Iterable[str]:
    from moonshim.engine.formats import TOOL_FORMATS

    return TOOL_FORMATS


def _tool_names() -> Iterable[str]:
    from moonshim.agent.toolbox import toolbox

    return [tool.name for tool in toolbox(Path())]
