"""`moonshim mend`: recorded streams and responses -> mended ones, and a report of the repairs on standard error."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from itertools import chain
from typing import Any, Final, Literal, cast

import msgspec

from moonshim.cli import console
from moonshim.cli.input_file import open_input
from moonshim.cli.mend.destination import CannotWrite, OutputFolder, StandardOutput, UnusableFolder
from moonshim.cli.mend.options import explain_options, parse_settings, setting_names
from moonshim.cli.mend.report import Outcome, render_json, render_table
from moonshim.cli.request_file import BadRequestFile, RequestFacts, facts_from_header, read_request, read_tools
from moonshim.cli.suggest import suggest
from moonshim.engine.formats import is_kimi_model
from moonshim.engine.plan import Plan
from moonshim.engine.response.body import mend_response
from moonshim.engine.response.reply import read_reply
from moonshim.engine.response.stream import Mender
from moonshim.engine.values.events import Failed
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.wire.json_codec import encode
from moonshim.engine.wire.sse import BYTE_ORDER_MARK
from moonshim.errors import InvalidOption, MoonshimError
from moonshim.gateway.observe.recording import NotARecording, Recording, Sniffer, split_header
from moonshim.gateway.observe.stream_header import NOTHING_SENT, StreamHeader, plan_of

__all__ = ["main", "parser"]

PIECE: Final = 64 * 1024
ENDED_IN_ERROR: Final = 3
_MESSAGES: Final = re.compile(rb'^event: ?message_start|"type" ?: ?"message_start"', re.MULTILINE)
_HINT: Final = """\
moonshim mend: no input. Name a recorded stream, or pipe one in:
  moonshim mend leaked.sse
  curl -sN … | moonshim mend
Run `moonshim mend --help` for usage"""
_EXAMPLES: Final = """\
examples:
  moonshim mend leaked.sse > mended.sse
  curl -sN … | moonshim mend
  moonshim mend leaked.sse --tools tools.json --model kimi-k2.5
  moonshim mend leaked.sse --set repairArguments=schema --set idPolicy=keep
  moonshim mend *.sse --output mended --report json 2> report.json"""
_EXIT_CODES: Final = """\
exit codes:
  0  everything is mended, or needed no repair
  1  an input could not be read, or an output not written; the reason is
     printed, and the other files are still processed
  2  invalid command line
  3  everything was read, but a response ended in an error: the host closed the
     connection or sent an error"""


class CannotRead(Exception):
    """The input cannot be opened, or not be read to its end."""


class MendSettings(msgspec.Struct, frozen=True):
    """How to mend, as far as it is specified."""

    facts: RequestFacts
    options: KimiOptions | None
    """None: those that fit the model."""
    model: str | None = None
    """Only if it was named on the command line."""

    def with_header(self, header: StreamHeader | None) -> MendSettings:
        """The same, with facts from the header of a log unless the command line gives some."""
        if header is None or self.facts != RequestFacts():
            return self
        return msgspec.structs.replace(self, facts=facts_from_header(header.request or {}, header.model))

    def plan_in(self, header: StreamHeader) -> Plan | None:
        """The plan to mend the response in a log again; None if the log lacks it, or the command line overrides it."""
        if header.request is None or not header.request_whole or self.facts != RequestFacts():
            return None
        return plan_of(header, model=self.model, options=self.options)

    def arguments(self, recording: Recording) -> dict[str, Any]:
        """Arguments for the engine. `mend` always repairs, whatever name a host gave to its model."""
        model, options = self.model, self.options
        if model is None:
            named = (name for name in (self.facts.model, recording.model) if name is not None and is_kimi_model(name))
            model, options = next(named, "kimi"), options or KimiOptions.mending()
        return {
            "model": model,
            "tools": self.facts.tools,
            "tool_choice": self.facts.tool_choice,
            "history": self.facts.history,
            "options": options,
        }


def main(argv: Sequence[str]) -> int:
    """Run `moonshim mend`; return the exit code."""
    command = parser()
    given = command.parse_intermixed_args(list(argv))
    if "list" in given.set:
        print(explain_options(console.width_of(sys.stdout)), flush=True)
        return console.DONE
    files: list[str] = given.files or ["-"]
    if not given.files and (sys.stdin is None or sys.stdin.isatty()):
        console.print_note(_HINT)
        return console.BAD_USAGE
    if "" in files:
        command.error("a FILE argument is empty")
    if files.count("-") > 1:
        command.error("standard input (-) is listed more than once")
    if given.tools is not None and given.request is not None:
        command.error("--tools cannot be combined with --request")
    try:
        settings = _settings(given)
        destination = _destination(given, files)
    except (InvalidOption, BadRequestFile, UnusableFolder) as error:
        console.print_note(f"moonshim mend: {console.safe(str(error))}")
        return console.BAD_USAGE
    return _mend_all(files, settings, destination, in_json=given.report == "json")


def _mend_all(files: list[str], settings: MendSettings, to: OutputFolder | StandardOutput, *, in_json: bool) -> int:
    outcomes: list[Outcome] = []
    paint, width = console.Paint(sys.stderr), console.width_of(sys.stderr)
    if settings.model is not None and settings.options is None and not is_kimi_model(settings.model) and not in_json:
        name = console.safe(settings.model)
        console.print_note(f"moonshim mend: {name} is not a Kimi model: only framing and finish_reason are repaired")
    for place, file in enumerate(files):
        outcome = _mend_one(file, place, settings, to)
        outcomes.append(outcome)
        if not in_json:
            console.print_note(render_table(outcome, paint, width))
    if in_json:
        console.print_note(render_json(outcomes))
    if any(outcome.error is not None for outcome in outcomes):
        return console.FAILED
    return ENDED_IN_ERROR if any(isinstance(outcome.ending, Failed) for outcome in outcomes) else console.DONE


def _mend_one(file: str, place: int, settings: MendSettings, to: OutputFolder | StandardOutput) -> Outcome:
    """Mend one recording; a failure must not affect the others."""
    try:
        if to.is_input(file):
            return Outcome(file, error="this file is also the output")
        header, stream = split_header(_pieces(file))
        if header is not None and (plan := settings.plan_in(header)) is not None:
            with to.open(place) as write:
                outcome = _replay(file, header, plan, stream, write)
            return msgspec.structs.replace(outcome, output=to.path(place))
        sniffer = Sniffer()
        recording = _sniff(sniffer, stream)
        if _MESSAGES.search(bytes(sniffer.head[:4096])):
            raise NotARecording(
                "this is an Anthropic Messages response; mend reads only Chat Completions "
                "(in Python, Mender(plan=…) reads both)"
            )
        arguments = settings.with_header(header).arguments(recording)
        with to.open(place) as write:
            if recording.body is not None:
                outcome = _mend_whole(file, recording, bytes(sniffer.head), arguments, write)
            else:
                outcome = _mend_stream(file, recording, sniffer, stream, arguments, write)
        return msgspec.structs.replace(outcome, output=to.path(place))
    except (NotARecording, CannotRead, CannotWrite, MoonshimError) as error:
        return Outcome(file, error=str(error))
    except BrokenPipeError:
        raise
    except Exception as error:
        if console.debugging():
            raise
        return Outcome(file, error=console.fault_line(error))


def _replay(
    file: str, header: StreamHeader, plan: Plan, stream: Iterator[bytes], write: Callable[[bytes], None]
) -> Outcome:
    """Mend the response in a gateway log again as the gateway did: with its options, for the same client."""
    input_format, head = header.input_format, b""
    if input_format is None:
        sniffer = Sniffer()
        input_format = _sniff(sniffer, stream).kind
        head = bytes(sniffer.head)
    reading, error = (
        read_reply(
            plan,
            input_format=input_format,
            output_format=header.output_format or input_format,
            limit=header.max_answer_bytes,
        ),
        None,
    )
    is_passed_on = header.outcome.word != NOTHING_SENT
    room, last = header.max_answer_bytes, b""
    try:
        for piece in chain([head], stream):
            room -= len(piece)
            if room < 0:
                last += piece  # the gateway read the piece with which the response got too large, and nothing more
            elif (out := reading.feed(piece)) and is_passed_on:
                write(out)
    except CannotRead as failure:
        error = str(failure)
    out = (reading.feed(last) if last else b"") + reading.flush()
    if is_passed_on or reading.problem is None:
        write(out)
        repairs, counts = reading.repairs, reading.repair_counts
    else:
        write(read_reply(plan, input_format="sse", output_format="sse").fail(reading.problem))
        repairs, counts = [], {}
    return Outcome(file, input_format, plan.model, repairs=repairs, counts=counts, ending=reading.ending, error=error)


def _sniff(sniffer: Sniffer, stream: Iterator[bytes]) -> Recording:
    for piece in stream:
        recording = sniffer.feed(piece)
        if recording is not None:
            return recording
    return sniffer.flush()


def _mend_stream(
    file: str,
    recording: Recording,
    sniffer: Sniffer,
    stream: Iterator[bytes],
    arguments: dict[str, Any],
    write: Callable[[bytes], None],
) -> Outcome:
    framing: Literal["sse", "ndjson"] = "ndjson" if recording.kind == "ndjson" else "sse"
    mender, error = Mender(**arguments, framing=framing, collect=False), None
    write(mender.feed(bytes(sniffer.head)))
    sniffer.head.clear()
    try:
        for piece in stream:
            write(mender.feed(piece))
    except CannotRead as failure:
        error = str(failure)
    write(mender.flush())
    return Outcome(
        file,
        recording.kind,
        arguments["model"],
        repairs=mender.repairs,
        counts=mender.repair_counts,
        ending=mender.ending,
        error=error,
    )


def _mend_whole(
    file: str, recording: Recording, text: bytes, arguments: dict[str, Any], write: Callable[[bytes], None]
) -> Outcome:
    body = recording.body or {}
    mended = mend_response(body, **arguments)
    if mended.body is body:
        while text.startswith(BYTE_ORDER_MARK):
            text = text.removeprefix(BYTE_ORDER_MARK)
        write(text)
    else:
        data = encode(mended.body)
        write((msgspec.json.format(data, indent=2) if b"\n" in text.strip() else data) + b"\n")
    repairs = [*recording.repairs, *mended.repairs]
    counts = Counter(repair.rule for repair in recording.repairs) + Counter(mended.repair_counts)
    return Outcome(file, "json", arguments["model"], repairs=repairs, counts=dict(counts), ending=mended.ending)


def _pieces(file: str) -> Iterator[bytes]:
    """The bytes as they come: what a pipe has, and never more than a piece at a time."""
    try:
        if file != "-":
            with open_input(file) as opened:
                while data := opened.read(PIECE):
                    yield data
        elif sys.stdin is None:
            raise CannotRead("closed")
        else:
            while data := cast(BufferedReader, sys.stdin.buffer).read1(PIECE):
                yield data
    except (OSError, ValueError) as error:
        raise CannotRead(getattr(error, "strerror", None) or str(error)) from None


def _settings(given: Any) -> MendSettings:
    facts = RequestFacts()
    if given.tools is not None:
        facts = read_tools(given.tools)
    elif given.request is not None:
        facts = read_request(given.request)
    return MendSettings(facts, parse_settings(given.set) if given.set else None, given.model or None)


def _destination(given: Any, files: list[str]) -> OutputFolder | StandardOutput:
    if given.output is None:
        return StandardOutput()
    return OutputFolder(given.output, files, [path for path in (given.tools, given.request) if path is not None])


def parser() -> console.Parser:
    """The command's arguments."""
    width = max(60, min(console.width_of(sys.stdout), 110))
    made = console.Parser(
        prog="moonshim mend",
        usage="moonshim mend [OPTIONS] [FILE ...]",
        description="Repair recorded streams and responses of a Kimi model: leaked markers, tool\n"
        "calls, ids, arguments and finish reasons. Parts that need no repair pass through\n"
        "byte for byte. The repairs are reported on standard error.",
        epilog=f"{_EXAMPLES}\n\noptions for --set, with their defaults:\n{explain_options(width)}\n\n{_EXIT_CODES}",
    )
    reads = made.add_argument_group("input")
    suggest(
        reads.add_argument(
            "files",
            nargs="*",
            metavar="FILE",
            help="a recording: SSE, NDJSON, one JSON response, or a stream log of the gateway, detected from its "
            "content (default: -, standard input)",
        ),
        "files",
    )
    request = made.add_argument_group("the original request")
    request.add_argument("--model", metavar="NAME", help="model (default: the one named in the recording)")
    suggest(
        request.add_argument(
            "--tools", metavar="FILE", help="JSON file: a list of OpenAI tool definitions, or a request that has them"
        ),
        "files",
    )
    suggest(
        request.add_argument(
            "--request", metavar="FILE", help="JSON file: the whole request with tools, tool_choice, messages and model"
        ),
        "files",
    )
    how = made.add_argument_group("repairs")
    suggest(
        how.add_argument(
            "--set",
            metavar="OPTION=VALUE",
            action="append",
            default=[],
            help="set an option, in camelCase or snake_case (repeatable); `--set list` lists the options",
        ),
        names=setting_names,
    )
    out = made.add_argument_group("output")
    suggest(
        out.add_argument("--output", metavar="DIR", help="write files to this folder (default: standard output)"),
        "folders",
    )
    out.add_argument(
        "--report",
        choices=("table", "json"),
        default="table",
        help="format of the report on standard error (default: table)",
    )
    return made
