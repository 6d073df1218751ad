"""`moonshim explain`: a request -> the request that its host would be sent, with every change and its reason.

The document, with `--format json`:

    {"from": "anthropic", "to": "openai_chat", "host": "moonshot", "generation": "k2.5", "model": "kimi-k2.5",
     "body": {…},                                                  what would be sent
     "changes": [{"rule": "…", "detail": "…", "place": "…"}]}      what is sent differently; `place` may be missing

A request that is refused gives `{"error": …}` instead, in the client's own dialect.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from moonshim.cli import console
from moonshim.cli.recording import split_header
from moonshim.cli.request_file import LIMIT, decode_json
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, UPSTREAM_DIALECTS, dialect_named
from moonshim.engine.prepare import Prepared, prepare_request
from moonshim.engine.values.conversation import Change
from moonshim.errors import InvalidInput, InvalidOption, problem_of
from moonshim.gateway.observe.stream_header import StreamHeader
from moonshim.http_server.log_lines import json_for_terminal

__all__ = ["guess_dialect", "main"]

_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "redacted_thinking")
_STREAM: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?:data|event|id|retry):|: )")
_USAGE: Final = """moonshim explain REQUEST.json [--from DIALECT] [--host NAME | --base-url URL]
                        [--model NAME] [--to DIALECT] [--set CELL=VALUE] [--format text|json]"""
_EPILOG: Final = """\
examples:
  moonshim explain request.json --host moonshot --model kimi-k2.6
  moonshim explain claude-code.json --from anthropic --host vllm --model kimi-k2.5
  moonshim explain request.json --base-url https://openrouter.ai/api/v1 --format json
  moonshim explain logs/sse_….log                     what the gateway sent, and what it changed

A stream log (moonshim serve --log-dir) says its dialect, host and model itself; an option that names another one
shows what would be sent there instead.

exit codes:
  0  the request can be sent; what would be sent is shown
  1  the request is refused, or could not be read; a line says why, and which field is wrong
  2  the command was not understood

With --format json a refused request is the error body in its own dialect; what could not be read at all is only told
on standard error. A file may have 64 MiB."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim explain`; return the exit code."""
    parser = _parser()
    given = parser.parse_args(list(argv))
    if given.request == "-" and (sys.stdin is None or sys.stdin.isatty()):
        console.print_note(
            "moonshim explain: nothing to read. Name the file of a request, or pipe one in (--help shows how)"
        )
        return console.BAD_USAGE
    if given.model == "":
        parser.error("--model needs a name")
    if "://" in (given.host or ""):
        parser.error("--host takes the name of a row of the host table; an address goes behind --base-url")
    try:
        body, header = _read(given.request)
    except (OSError, ValueError) as error:
        name = "standard input" if given.request == "-" else given.request
        why = getattr(error, "strerror", None) or error
        console.print_note(f"moonshim explain: {console.safe(name)}: {console.safe(str(why))}")
        return console.FAILED
    in_json = given.format == "json"
    logged = header or StreamHeader()
    dialect = given.from_ or (logged.dialect if header is not None else guess_dialect(body))
    try:
        prepared = prepare_request(
            body,
            dialect=dialect,
            upstream=given.to or logged.dialect,
            host=given.host or (logged.host if given.base_url is None else None),
            base_url=given.base_url,
            model=given.model or logged.model,
            overrides=_parse_overrides(given.set),
        )
    except InvalidOption as error:
        parser.error(str(error))
    except InvalidInput as error:
        if error.field in ("host", "upstream", "base_url"):
            parser.error(str(error))
        _print_refusal(error, dialect, in_json=in_json)
        return console.FAILED
    elsewhere = given.from_ or given.to or given.host or given.base_url or given.model or given.set
    if header is not None and header.changes is not None and not elsewhere:
        # The log has the request that was sent, and why: preparing it again would only confirm that it is right.
        prepared = msgspec.structs.replace(prepared, body=body, changes=list(header.changes))
        dialect = header.client_dialect or dialect
    print(_as_json(prepared, dialect) if in_json else _as_text(prepared, dialect), flush=True)
    return console.DONE


def guess_dialect(body: Any) -> str:
    """The dialect that a request is most likely written in.

    >>> guess_dialect({"input": "hi"}), guess_dialect({"system": "s", "messages": []}), guess_dialect({"messages": []})
    ('openai_responses', 'anthropic', 'openai_chat')
    """
    if not isinstance(body, dict):
        return "openai_chat"
    if "input" in body and "messages" not in body:
        return "openai_responses"
    tools = body.get("tools")
    schemas = (
        any(isinstance(tool, dict) and "input_schema" in tool for tool in tools if tool)
        if isinstance(tools, list)
        else False
    )
    messages = schemas or "system" in body or "stop_sequences" in body or _has_blocks(body.get("messages"))
    return "anthropic" if messages else "openai_chat"


def _has_blocks(messages: Any) -> bool:
    """Whether contents have blocks that only Messages has.

    >>> _has_blocks([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}])
    True
    """
    listed = messages if isinstance(messages, list) else []
    contents = [message.get("content") for message in listed if isinstance(message, dict)]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return any(isinstance(block, dict) and block.get("type") in _BLOCKS for block in blocks)


def _read(name: str) -> tuple[Any, StreamHeader | None]:
    """A request, from a file that contains only it, or from the header of a stream log."""
    if name == "-":
        data = sys.stdin.buffer.read(LIMIT + 1) if sys.stdin is not None else b""
    else:
        with Path(name).open("rb") as file:
            data = file.read(LIMIT + 1)
    header, _ = split_header(iter([data]))
    if header is None:
        if _STREAM.match(data):
            raise ValueError("this is a stream, not a request; `moonshim mend` reads streams")
        return decode_json(data), None
    if header.request is None or not header.request_whole:
        raise ValueError("a stream log whose request was too long to be kept whole")
    return header.request, header


def _parse_overrides(settings: list[str]) -> dict[str, Any]:
    """`CELL=VALUE`, where a value is JSON, or else a word."""
    overrides: dict[str, Any] = {}
    for setting in settings:
        cell, equals, value = setting.partition("=")
        if not equals:
            raise InvalidOption(f"--set takes CELL=VALUE, not {setting!r}", field=cell)
        try:
            overrides[cell] = json.loads(value)
        except ValueError:
            overrides[cell] = value
    return overrides


def _as_json(prepared: Prepared, dialect: str) -> str:
    profile = prepared.profile
    return _json(
        {
            "from": dialect,
            "to": profile.dialect,
            "host": profile.host,
            "generation": profile.generation,
            "model": prepared.body.get("model"),
            "body": prepared.body,
            "changes": msgspec.to_builtins(prepared.changes),
        }
    )


def _json(value: Any) -> str:
    return json_for_terminal(json.dumps(value, ensure_ascii=False, indent=2))


def _as_text(prepared: Prepared, dialect: str) -> str:
    paint, profile = console.Paint(sys.stdout), prepared.profile
    model = console.safe(str(prepared.body.get("model")))
    kind = "not a Kimi model" if profile.generation == "other" else f"generation {profile.generation}"
    lines = [
        paint.bold(f"{dialect} -> {profile.dialect}") + f" for {profile.host}, model {model} ({kind})",
        "",
        paint.bold("What would be sent"),
        _json(prepared.body),
        "",
    ]
    count = len(prepared.changes)
    if not count:
        return "\n".join([*lines, paint.green("Nothing had to be changed.")])
    lines.append(paint.bold(f"What was changed ({count})"))
    return "\n".join([*lines, *(_line(change, paint) for change in prepared.changes)])


def _line(change: Change, paint: console.Paint) -> str:
    place = f"{console.safe(change.place)}: " if change.place else ""
    return f"  {place}{console.safe(change.detail)} {paint.dim('(' + change.rule + ')')}"


def _print_refusal(error: InvalidInput, dialect: str, *, in_json: bool) -> None:
    if in_json:
        problem = dialect_named(dialect).render_problem(problem_of(error))
        print(_json(problem), flush=True)
    else:
        where = f"{console.safe(error.field)}: " if error.field else ""
        console.print_note(f"moonshim explain: the request is refused: {where}{console.safe(str(error))}")


def _parser() -> console.Parser:
    parser = console.Parser(
        prog="moonshim explain",
        usage=_USAGE,
        description="What a host would be sent for a request, and why it differs from what the client said.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "request",
        metavar="REQUEST.json",
        nargs="?",
        default="-",
        help="the body of a request, or a stream log; - is standard input",
    )
    add("--from", dest="from_", choices=CLIENT_DIALECTS, help="its dialect; guessed from its fields otherwise")
    add("--to", choices=UPSTREAM_DIALECTS, help="what the host speaks (openai_chat)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--host", metavar="NAME", help="a row of the host table: moonshot, openrouter, vllm, …")
    place.add_argument("--base-url", metavar="URL", help="the host's address, when it is not named")
    add("--model", metavar="NAME", help="what the host calls the model; as the request says otherwise")
    add("--set", metavar="CELL=VALUE", action="append", default=[], help="override a cell of the host's row")
    add("--format", choices=("text", "json"), default="text", help="for people, or for programs")
    return parser
