"""`moonshim explain`: a request -> the request that its host would receive, with every change and its reason.

The document, with `--format json`:

    {"from": "anthropic", "to": "openai_chat", "host": "moonshot", "generation": "k2.5", "model": "kimi-k2.5",
     "body": {…},                                                  the request for the host
     "changes": [{"rule": "…", "detail": "…", "place": "…"}]}      changes to the request; `place` may be missing

With `--previous`, it also has `"prefix_lost"`: what keeps the host from reading the previous request from its prompt
cache, or null. A refused request gives `{"error": …}` instead, in the client's dialect.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from io import BufferedReader
from typing import Any, Final

import msgspec

from moonshim.cli import console
from moonshim.cli.input_file import open_input
from moonshim.cli.request_file import LIMIT, decode_json
from moonshim.cli.suggest import suggest
from moonshim.documents import DocumentReader
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, UPSTREAM_DIALECTS, dialect_named
from moonshim.engine.formats import without_window
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.hosts.table import HOSTS
from moonshim.engine.prepare import Prepared, read_request
from moonshim.engine.request.prefix import compare_prompts, digest_prompt
from moonshim.engine.request.prefix_loss import describe_pause, requested_ttl
from moonshim.engine.values.conversation import Change
from moonshim.errors import InvalidInput, InvalidOption, problem_of
from moonshim.gateway.observe.recording import split_header
from moonshim.gateway.observe.stream_header import StreamHeader
from moonshim.http_server.log_lines import json_for_terminal

__all__ = ["guess_dialect", "main", "parser"]

_BLOCKS: Final = (
    *("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image"),
    *("server_tool_use", "web_search_tool_result"),
)
_VERSIONED_TOOL: Final = re.compile(r"\w+_20\d{6}")
"""Tools that Anthropic runs or defines, such as `web_search_20250305`."""
_STREAM: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?:data|event|id|retry):|: )")
_EPILOG: Final = """\
A stream log (see `moonshim serve --log-dir`) contains its dialect, host and
model. Options override them and show what another host would receive. With
--format json, a refused request prints the error body in the client's dialect;
an unreadable file is reported only on standard error. Files can be up to
64 MiB.

examples:
  moonshim explain request.json --host moonshot --model kimi-k3
  moonshim explain claude-code.json --from anthropic --host vllm
  moonshim explain request.json --base-url https://openrouter.ai/api/v1
  moonshim explain logs/sse_….log        what the gateway sent and changed
  moonshim explain --previous first.json second.json
                                         what ruins the prompt cache

exit codes:
  0  the request can be sent, and is shown
  1  the request is refused or cannot be read; the field and reason are printed
  2  invalid command line"""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim explain`; return the exit code."""
    command = parser()
    given = command.parse_args(list(argv))
    if "-" in (given.request, given.previous) and (sys.stdin is None or sys.stdin.isatty()):
        console.print_note(
            "moonshim explain: no input. Name a request file, or pipe one in (see `moonshim explain --help`)"
        )
        return console.BAD_USAGE
    if given.model == "":
        command.error("argument --model: expected a name")
    if "://" in (given.host or ""):
        command.error("argument --host: expected the name of a host profile; use --base-url for a URL")
    in_json = given.format == "json"
    previous = None
    if given.previous is not None and (previous := _load(command, given, given.previous)) is None:
        return console.FAILED
    if (explained := _load(command, given, given.request)) is None:
        return console.FAILED
    lost = None if previous is None else _find_change(previous, explained)
    if in_json:
        document = _as_document(explained.prepared, explained.dialect)
        print(_json(document | ({} if previous is None else {"prefix_lost": lost})), flush=True)
    elif previous is not None:  # alone: below a long request, nobody would see it
        print("\n".join(_prefix_lines(given.previous, lost)), flush=True)
    else:
        print(_as_text(explained.prepared, explained.dialect), flush=True)
    return console.DONE


class _Explained(msgspec.Struct, frozen=True):
    """A request as its host would receive it, or has received it."""

    prepared: Prepared
    dialect: str
    header: StreamHeader | None


def _load(command: console.Parser, given: Any, file: str) -> _Explained | None:
    """Read a file, and prepare its request for the host; None if that is impossible, which has been printed."""
    try:
        body, header = _read(file)
    except (OSError, ValueError) as error:
        name = "standard input" if file == "-" else file
        why = getattr(error, "strerror", None) or error
        console.print_note(f"moonshim explain: {console.safe(name)}: {console.safe(str(why))}")
        return None
    logged = header or StreamHeader()
    dialect = given.from_ or (logged.dialect if header is not None else guess_dialect(body))
    try:
        model = given.model or logged.model
        parsed = read_request(body, dialect=dialect, default_model=model)
        model = without_window(model or parsed.request.model)
        if documents := parsed.documents():
            parsed.extracted = DocumentReader().read_all(documents)
        prepared = parsed.prepare(
            upstream=given.to or logged.dialect,
            host=given.host or (logged.host if given.base_url is None else None),
            base_url=given.base_url,
            model=model,
            overrides=_parse_overrides(given.set),
        )
    except InvalidOption as error:
        command.error(str(error))
    except InvalidInput as error:
        if error.field in ("host", "upstream", "base_url"):
            command.error(str(error))
        _print_refusal(error, dialect, in_json=given.format == "json")
        return None
    elsewhere = given.from_ or given.to or given.host or given.base_url or given.model or given.set
    if header is not None and header.changes is not None and not elsewhere:
        # The log has the request that was sent, and why: preparing it again would only confirm that it is right.
        prepared = msgspec.structs.replace(prepared, body=body, changes=list(header.changes))
        dialect = header.client_dialect or dialect
    return _Explained(prepared, dialect, header)


def _find_change(previous: _Explained, current: _Explained) -> str | None:
    """What keeps the host from reading the previous request from its prompt cache; None: nothing."""
    before, after = previous.prepared.body, current.prepared.body
    providers = [one.header.provider or "" if one.header is not None else "" for one in (previous, current)]
    change = compare_prompts(
        digest_prompt(before, b"", provider=providers[0]), digest_prompt(after, b"", provider=providers[1])
    )
    reasons = [] if change is None else [change.describe(after)]
    if previous.header is not None and current.header is not None:
        try:
            first, second = (datetime.fromisoformat(one.time) for one in (previous.header, current.header))
            pause = describe_pause((second - first).total_seconds(), requested_ttl(before))
        except (ValueError, TypeError):  # of another version
            pause = None
        reasons += [] if pause is None else [pause]
    return "; ".join(reasons) or None


def _prefix_lines(name: str, lost: str | None) -> list[str]:
    paint = console.Paint(sys.stdout)
    title = paint.bold(f"Prompt prefix, compared with {console.safe(name)}")
    if lost is None:
        return [title, paint.green("  Unchanged: the host can read the previous request from its cache.")]
    return [title, f"  {console.safe(lost)}", "  From there on, the host cannot use its prompt cache."]


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
    declared = any(map(_is_messages_tool, tools)) if isinstance(tools, list) else False
    messages = declared or "system" in body or "stop_sequences" in body or _has_blocks(body.get("messages"))
    return "anthropic" if messages else "openai_chat"


def _is_messages_tool(tool: Any) -> bool:
    return isinstance(tool, dict) and (
        "input_schema" in tool or _VERSIONED_TOOL.fullmatch(str(tool.get("type"))) is not None
    )


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
        with BufferedReader(open_input(name)) as file:
            data = file.read(LIMIT + 1)
    if not data.strip():
        raise ValueError("the input is empty" + ("; pass FILE, or pipe a request in" if name == "-" else ""))
    header, _ = split_header(iter([data]))
    if header is None:
        if _STREAM.match(data):
            raise ValueError("this is a stream, not a request; use `moonshim mend` for streams")
        return decode_json(data), None
    if header.request is None or not header.request_whole:
        raise ValueError("this stream log does not contain the whole request: it was too long")
    return header.request, header


def _parse_overrides(settings: list[str]) -> dict[str, Any]:
    """`FIELD=VALUE`, where a value is JSON, or else a string."""
    overrides: dict[str, Any] = {}
    for setting in settings:
        field, equals, value = setting.partition("=")
        if not equals:
            raise InvalidOption(f"--set {setting}: expected FIELD=VALUE", field=field)
        try:
            overrides[field] = json.loads(value)
        except ValueError:
            overrides[field] = value
    return overrides


def _as_document(prepared: Prepared, dialect: str) -> dict[str, Any]:
    profile = prepared.profile
    return {
        "from": dialect,
        "to": profile.dialect,
        "host": profile.host,
        "generation": profile.generation,
        "model": prepared.body.get("model"),
        "body": prepared.body,
        "changes": msgspec.to_builtins(prepared.changes),
    }


def _json(value: Any) -> str:
    return json_for_terminal(json.dumps(value, ensure_ascii=False, indent=2))


def _as_text(prepared: Prepared, dialect: str) -> str:
    paint, profile = console.Paint(sys.stdout), prepared.profile
    model = console.safe(str(prepared.body.get("model")))
    kind = "not a Kimi model" if profile.generation == "other" else f"generation {profile.generation}"
    lines = [
        paint.bold(f"{dialect} -> {profile.dialect}") + f" for {profile.host}, model {model} ({kind})",
        "",
        paint.bold("Request sent to the host"),
        _json(prepared.body),
        "",
    ]
    count = len(prepared.changes)
    if not count:
        return "\n".join([*lines, paint.green("No changes needed.")])
    lines.append(paint.bold(f"Changes ({count})"))
    return "\n".join([*lines, *(_line(change, paint) for change in prepared.changes)])


def _line(change: Change, paint: console.Paint) -> str:
    place = f"{console.safe(change.place)}: " if change.place else ""
    return f"  {place}{console.safe(change.detail)} {paint.dim('(' + change.rule + ')')}"


def _print_refusal(error: InvalidInput, dialect: str, *, in_json: bool) -> None:
    problem = problem_of(error)
    if in_json:
        print(_json(dialect_named(dialect).render_problem(problem)), flush=True)
    else:
        console.print_note(f"moonshim explain: request refused: {console.safe(problem.located_message)}")


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim explain",
        usage="moonshim explain [OPTIONS] [FILE]",
        description="Show the request that a host would receive for a client's request, and the\n"
        "reason for every change.",
        epilog=_EPILOG,
    )
    reads = made.add_argument_group("input")
    suggest(
        reads.add_argument(
            "request",
            metavar="FILE",
            nargs="?",
            default="-",
            help="a request body in JSON, or a stream log of the gateway (default: -, standard input)",
        ),
        "files",
    )
    suggest(
        reads.add_argument(
            "--previous",
            metavar="FILE",
            help="the request before it: show what keeps the host from using its prompt cache, instead of the request",
        ),
        "files",
    )
    reads.add_argument(
        "--from", dest="from_", choices=CLIENT_DIALECTS, help="dialect of the request (default: detected)"
    )
    target = made.add_argument_group("the host")
    place = target.add_mutually_exclusive_group()
    suggest(
        place.add_argument("--host", metavar="NAME", help="host profile: moonshot, openrouter, vllm, …"),
        names=lambda: HOSTS,
    )
    place.add_argument("--base-url", metavar="URL", help="base URL of the host, to detect its profile")
    target.add_argument("--model", metavar="NAME", help="model name at the host (default: the model of the request)")
    target.add_argument("--to", choices=UPSTREAM_DIALECTS, help="dialect of the host (default: openai_chat)")
    suggest(
        target.add_argument(
            "--set",
            metavar="FIELD=VALUE",
            action="append",
            default=[],
            help="override a field of the host profile (repeatable)",
        ),
        names=lambda: [f"{name}=" for name in HostProfile.__struct_fields__],
    )
    made.add_argument_group("output").add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )
    return made
