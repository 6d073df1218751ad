"""`moonshim simulate render`: a request -> the prompt that the model sees, with wrong ids in red."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from moonshim.cli import console
from moonshim.cli.explain import guess_dialect
from moonshim.cli.request_file import LIMIT, decode_json
from moonshim.cli.suggest import suggest
from moonshim.engine.wire.json_codec import decode_object
from moonshim.simulator.host.behaviours import BEHAVIOURS, HostBehaviour
from moonshim.simulator.host.models import MODELS, generation_of
from moonshim.simulator.host.parse_request import parse_request
from moonshim.simulator.render import render_prompt
from moonshim.simulator.render.history_ids import HistoryId, history_ids
from moonshim.simulator.request import Json, SimRequest, Wire
from moonshim.simulator.rules import check

__all__ = ["main", "parser"]

_WIRES: Final[dict[str, Wire]] = {"chat": "openai_chat", "messages": "anthropic"}
_SHOWN: Final = re.compile(
    r"(?P<marker><\|[a-z0-9_]+\|>|</?think>)"
    r"|(?:(?<=<\|tool_call_begin\|>)(?P<called>[^<]+))|(?:(?<=## Return of )(?P<returned>[^\n]+))"
)
_SHOWN_AT_MOST: Final = 20
_ENDS: Final = ("<|im_end|>", "<|end_of_msg|>")
_EPILOG: Final = """\
On a terminal every message starts on its own line, markers are dim, ids that
the model would have written are green, and other ids are red. In a pipe the
prompt is written byte for byte, without a final line break. K2, K2-Thinking and
K3 use their published templates; K2.5, K2.6 and K2.7 are reconstructed from
published excerpts. Files can be up to 64 MiB.

examples:
  moonshim simulate render request.json                  ids as they were sent,
                                                         as a self-host does
  moonshim simulate render request.json --as moonshot    ids renamed, as
                                                         Moonshot does
  moonshim simulate render request.json --model kimi-k3  for another model

exit codes:
  0  the prompt is shown, and nothing is wrong with it
  1  the prompt is shown, but the host would refuse the request, or the model
     sees ids that it would not write
  2  no prompt: the request cannot be read, its model is unknown, or the
     command line is invalid"""


class _NoPrompt(Exception):
    """There is nothing to render; the message is for the user."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim simulate render`; return the exit code."""
    given = parser().parse_args(list(argv))
    behaviour = BEHAVIOURS[given.as_]
    try:
        body = _body(given.request)
        if given.model:
            body = body | {"model": given.model}
        request = _parse_request(body, _wire(body, given.wire), behaviour)
    except _NoPrompt as error:
        console.print_note(f"moonshim simulate render: {error}")
        return console.BAD_USAGE
    ids = history_ids(request.turns) if request.family == "k2" else []
    renamed = behaviour.renames(request.wire)
    _show(render_prompt(request, renamed=renamed), ids, renamed=renamed)
    refused = _print_refusal(request, behaviour)
    wrong = _print_ids(request, ids, renamed=renamed)
    if request.family == "other":
        console.print_note(
            f"{console.safe(request.model)} is not a Kimi model and its template is unknown: showing K2's template"
        )
    return console.FAILED if refused or wrong else console.DONE


# -- the request -------------------------------------------------------------------------------------------------


def _body(name: str) -> Json:
    if name == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise _NoPrompt("no input. Name a request file, or pipe one in (see `moonshim simulate render --help`)")
    label = "standard input" if name == "-" else console.safe(name)
    data, body = b"", None
    try:
        data = _bytes(name)
        body = decode_json(data)
    except (OSError, ValueError) as error:
        body = decode_object(data)  # lone surrogates, which hosts accept, are not JSON for strict parsers
        if body is None:
            why = getattr(error, "strerror", None) or error
            raise _NoPrompt(f"{label}: {console.safe(str(why))}") from None
    if not isinstance(body, dict):
        raise _NoPrompt(f"{label}: expected a request body (a JSON object)")
    return body


def _bytes(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(LIMIT + 1)
    with Path(name).open("rb") as file:
        return file.read(LIMIT + 1)


def _wire(body: Json, requested: str | None) -> Wire:
    if requested is not None:
        return _WIRES[requested]
    dialect = guess_dialect(body)
    if dialect == "openai_responses":
        raise _NoPrompt("this is an OpenAI Responses request; only Chat and Messages can be rendered (see --wire)")
    return "anthropic" if dialect == "anthropic" else "openai_chat"


def _parse_request(body: Json, wire: Wire, behaviour: HostBehaviour) -> SimRequest:
    requested = body.get("model")
    if not isinstance(requested, str) or not requested:
        raise _NoPrompt("the request has no model; pass --model NAME")
    model = requested.partition("+")[0]  # the suffix names faults, which change responses and not prompts
    generation = generation_of(model)
    if generation is None:
        raise _NoPrompt(f"unknown model {console.safe(model)}; use --model with one of {', '.join(MODELS)}")
    return parse_request(body, wire=wire, model=model, generation=generation, host=behaviour.contract(wire))


# -- notes on standard error -------------------------------------------------------------------------------------


def _print_refusal(request: SimRequest, behaviour: HostBehaviour) -> bool:
    host = behaviour.contract(request.wire)
    objection = check(request.body, wire=request.wire, generation=request.generation, host=host)
    if objection is None:
        return False
    console.print_note(
        f"{behaviour.name} would refuse this request: {objection.status}, {console.safe(objection.message)}"
    )
    return True


def _print_ids(request: SimRequest, ids: list[HistoryId], *, renamed: bool) -> bool:
    """Print each id that the model would not have written, once: with the call, not again with its result."""
    wrong: dict[str | int, HistoryId] = {}
    for one in ids:
        if one.sent != one.right:
            wrong.setdefault(one.right or one.place, one)
    paint = console.Paint(sys.stderr)
    for one in list(wrong.values())[:_SHOWN_AT_MOST]:
        line = _line(one, request, renamed=renamed)
        console.print_note(line if renamed else paint.yellow(line))
    if len(wrong) > _SHOWN_AT_MOST:
        console.print_note(f"and {len(wrong) - _SHOWN_AT_MOST} more")
    if wrong and not renamed:
        console.print_note("Moonshot's API renames ids before the model sees them (try --as moonshot)")
    return bool(wrong) and not renamed


def _line(one: HistoryId, request: SimRequest, *, renamed: bool) -> str:
    place, sent = f"messages[{_message_index(one.place, request)}]", console.safe(one.sent) or "an empty id"
    if not one.right:
        return f"{place}: the model sees a result for {sent}, which matches no earlier call"
    if renamed:
        return f"{place}: the model sees {console.safe(one.right)} instead of {sent}"
    return f"{place}: the model sees {sent} where it would write {console.safe(one.right)}"


def _message_index(turn: int, request: SimRequest) -> int:
    """The index of a turn's message in the request: in Messages, a turn for `system` may come first."""
    messages = request.body.get("messages")
    entries = [at for at, entry in enumerate(messages if isinstance(messages, list) else []) if isinstance(entry, dict)]
    return entries[turn - (len(request.turns) - len(entries))]


# -- the prompt --------------------------------------------------------------------------------------------------


def _show(prompt: str, ids: list[HistoryId], *, renamed: bool) -> None:
    if sys.stdout.isatty():
        right = {one.right for one in ids if renamed or one.sent == one.right}
        wrong = set() if renamed else {one.sent for one in ids if one.sent != one.right}
        print(_highlight(prompt, right, wrong, console.Paint(sys.stdout)), flush=True)
    else:
        sys.stdout.buffer.write(prompt.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()


def _highlight(prompt: str, right: set[str], wrong: set[str], paint: console.Paint) -> str:
    pieces: list[str] = []
    done = 0
    for found in _SHOWN.finditer(prompt):
        pieces.append(_safe(prompt[done : found.start()]))
        done = found.end()
        if marker := found["marker"]:
            pieces.append(paint.dim(marker) + ("\n" if marker in _ENDS else ""))
        else:
            label = _safe(found[0])
            pieces.append(paint.red(label) if found[0] in wrong else paint.green(label) if found[0] in right else label)
    return "".join([*pieces, _safe(prompt[done:])])


def _safe(text: str) -> str:
    """Line breaks and tabs stay; other control characters are escaped."""
    return "\n".join("\t".join(map(console.safe, line.split("\t"))) for line in text.split("\n"))


def parser(action: str = "render") -> console.Parser:
    """The arguments of the action."""
    made = console.Parser(
        prog=f"moonshim simulate {action}",
        usage=f"moonshim simulate {action} [OPTIONS] [FILE]",
        description="Show the prompt that the model sees for a request. Use it to find tool call ids\n"
        "that confuse the model.",
        epilog=_EPILOG,
    )
    suggest(
        made.add_argument(
            "request", metavar="FILE", nargs="?", default="-", help="request body in JSON (default: -, standard input)"
        ),
        "files",
    )
    suggest(
        made.add_argument("--model", metavar="NAME", help="model to render for (default: the model of the request)"),
        names=lambda: MODELS,
    )
    made.add_argument(
        "--as",
        dest="as_",
        metavar="HOST",
        choices=tuple(BEHAVIOURS),
        default="selfhost",
        help=f"host to emulate: {', '.join(BEHAVIOURS)} (default: selfhost)",
    )
    made.add_argument("--wire", choices=tuple(_WIRES), help="dialect of the request (default: detected)")
    return made
