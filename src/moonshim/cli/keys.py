"""`moonshim keys`: manage the gateway's keys. A new key is shown once; the configuration stores its digest."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from moonshim.cli import console
from moonshim.cli.key_file import CannotEdit, Entry, KeyFile, block_of, create_file
from moonshim.config import ConfigError, FoundConfig, GatewayKey, load_keys, look_for_config, new_config_path
from moonshim.config.files.find import NoSuchConfig
from moonshim.config.files.locked_files import locked
from moonshim.config.files.source_file import read_text
from moonshim.config.trust import remember, trusted_snapshot
from moonshim.gateway.inbound.auth import new_key

__all__ = ["main"]

_USAGE: Final = """moonshim keys new NAME [--models PATTERN ...] [--expires 90d|DATE] [--rpm N] [--tpm N] [--streams N]
                         [--config FILE] [--print]
       moonshim keys list [--config FILE]
       moonshim keys revoke NAME [--config FILE]"""
_EPILOG: Final = """\
examples:
  moonshim keys new alice                              the key goes to standard output, and is shown this once
  moonshim keys new ci --models 'kimi-*' --expires 90d --rpm 60 --tpm 200000 --streams 4
  moonshim keys new bob --print                        the key, and the block to paste; no file is changed
  moonshim keys list
  moonshim keys revoke alice

Clients send a key as `Authorization: Bearer msk_…` or as `x-api-key: msk_…`: it is what they call the API key.
Without --config it is the file that `moonshim serve` would read. If there is none, `new` creates it: the one that
--config or MOONSHIM_CONFIG names, or moonshim.toml in your configuration folder. A gateway that runs takes a change
within two seconds; one that was started without any file has to be started again.

exit codes:
  0  done
  1  it could not be done; a line says why
  2  the command was not understood, or the configuration cannot be used"""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", re.ASCII)
_PERIOD: Final = re.compile(r"([1-9][0-9]{0,4})([hdwmy])", re.ASCII)
_HOURS: Final = {"h": 1, "d": 24, "w": 7 * 24, "m": 30 * 24, "y": 365 * 24}


def main(argv: Sequence[str]) -> int:
    """Run `moonshim keys`; return the exit code."""
    given = _parser().parse_args(list(argv))
    act: Callable[[argparse.Namespace], int] = given.act
    try:
        return act(given)
    except CannotEdit as error:
        console.print_note(f"moonshim keys: {console.safe(str(error))}")
        return console.FAILED
    except ConfigError as error:
        for problem in error.problems:
            console.print_note(f"moonshim keys: {console.safe(problem)}")
        return console.BAD_USAGE


def _new(given: argparse.Namespace) -> int:
    entry: Entry = {"name": given.name, "digest": ""}
    optional = {
        "models": given.models,
        "expires": given.expires,
        "requests_per_minute": given.rpm,
        "tokens_per_minute": given.tpm,
        "concurrent_streams": given.streams,
    }
    entry |= {field: value for field, value in optional.items() if value is not None}
    found = _find_config(given) or FoundConfig(new_config_path(given.config, os.environ, Path.cwd()), needs_trust=False)
    path = found.path
    if given.print:
        key, entry["digest"] = new_key()
        in_json = path.exists() and KeyFile(path).is_json
        print(f"{key}\n\n{block_of(entry, in_json=in_json)}", end="", flush=True)
        place, required = "the configuration", "`require_keys = true` under `[gateway]`"
        if in_json:
            place, required = "the list `keys` of the configuration", '`"require_keys": true` in the object `gateway`'
        console.print_note(
            f"moonshim keys: the first line is the key, shown this once; the rest is for {place}. It "
            f"should also say {required}"
        )
        return console.DONE
    with _edit_key_file(found) as file:
        created = file is None
        names = [] if file is None else [known.name for known in load_keys(path, os.environ, file.text)]
        if given.name.lower() in map(str.lower, names):
            raise CannotEdit(f"there is a key {given.name!r} already; revoke it first, or take another name")
        key, entry["digest"] = new_key()
        (file or create_file(path)).add(entry)
    # After writing: a key that could not be stored must not be handed out.
    print(key, flush=True)
    console.print_note(f"moonshim keys: this is the key {given.name!r}, shown this once; {path} has its digest")
    if created:
        console.print_note(
            f"moonshim keys: {path} was created; `moonshim serve` reads it, and takes hosts from the environment"
        )
    if not names:
        console.print_note(
            "moonshim keys: it is the first one: from now on every request needs a key (`require_keys = true`)"
        )
    return console.DONE


def _list(given: argparse.Namespace) -> int:
    found = _require_config(given)
    path = found.path
    text = trusted_snapshot(path, os.environ).text if found.needs_trust else read_text(path)
    keys = load_keys(path, os.environ, text)
    if not keys:
        console.print_note(f"moonshim keys: {path} has no keys")
        return console.DONE
    rows = [("NAME", "MODELS", "EXPIRES", "REQ/MIN", "TOK/MIN", "STREAMS", "DIGEST"), *map(_row, keys)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    paint = console.Paint(sys.stdout)
    for number, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print(line if number else paint.bold(line))
    sys.stdout.flush()
    return console.DONE


def _row(key: GatewayKey) -> tuple[str, ...]:
    expires = "never" if key.expires is None else f"{key.expires:%Y-%m-%d %H:%M %Z}"
    if key.expires is not None and key.expires <= datetime.now(UTC):
        expires = f"over since {expires}"
    limits = (key.requests_per_minute, key.tokens_per_minute, key.concurrent_streams)
    return (
        console.safe(key.name),
        console.safe(", ".join(key.models)) or "all",
        expires,
        *("-" if limit is None else f"{limit:,}" for limit in limits),
        key.digest.partition(":")[2][:8] + "…",  # enough to tell two apart
    )


def _revoke(given: argparse.Namespace) -> int:
    found = _require_config(given)
    path = found.path
    with _edit_key_file(found) as file:
        names = [] if file is None else [key.name for key in load_keys(path, os.environ, file.text)]
        if file is None or given.name not in names:
            near = difflib.get_close_matches(given.name, names, n=3)
            hint = f"; is it {' or '.join(near)}?" if near else "; `moonshim keys list` shows which there are"
            raise CannotEdit(f"there is no key {given.name!r} in {path}{hint}")
        file.remove(given.name)
    console.print_note(f"moonshim keys: the key {given.name!r} is gone from {path}")
    if len(names) == 1:
        console.print_note(
            "moonshim keys: it was the last one: every request is refused until there is another. To serve "
            "this machine without keys, take `require_keys` and `keys` out of the file and restart the gateway"
        )
    return console.DONE


@contextmanager
def _edit_key_file(found: FoundConfig) -> Iterator[KeyFile | None]:
    """The file, if it exists, locked against other changes to its keys; if it is trusted, it stays so after the
    change."""
    path = found.path
    if found.needs_trust:
        trusted_snapshot(path, os.environ)  # in a folder that is not trusted, not even a lock is created
    try:
        with locked(path):
            trusted = trusted_snapshot(path, os.environ) if found.needs_trust else None
            file = KeyFile(path) if path.exists() else None
            if trusted is not None and (file is None or file.text != trusted.text):
                raise CannotEdit(f"{path}: somebody else changed it just now; try again")
            yield file
            if trusted is not None and file is not None:
                remember(replace(trusted, text=file.text), os.environ)
    except OSError as error:
        what = "changed" if path.exists() else "created"
        raise CannotEdit(f"{path}: cannot be {what}: {error.strerror}") from None


def _find_config(given: argparse.Namespace) -> FoundConfig | None:
    """The file that `moonshim serve` would load, if there is one."""
    try:
        return look_for_config(given.config, os.environ, Path.cwd())
    except NoSuchConfig:
        return None


def _require_config(given: argparse.Namespace) -> FoundConfig:
    found = look_for_config(given.config, os.environ, Path.cwd())
    if found is None:
        raise CannotEdit("there is no configuration file; `moonshim keys new NAME` creates one, --config names another")
    return found


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError("a name has up to 64 letters, digits, and . _ @ + - behind the first")
    return text


def _pattern(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError("a model is a name or a pattern such as kimi-*")
    return text.strip()


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text[:12]) > 0 and len(text) <= 12):
        raise argparse.ArgumentTypeError("a limit is a number from 1 on")
    return int(text)


def _expiry(text: str, now: datetime | None = None) -> date:
    """A point in time, in UTC; or a date, through which the key is valid.

    >>> _expiry("12h", datetime(2026, 1, 1, tzinfo=UTC)), _expiry("2999-12-31")
    (datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.timezone.utc), datetime.date(2999, 12, 31))
    """
    now = now or datetime.now(UTC).replace(microsecond=0)
    period = _PERIOD.fullmatch(text)
    try:
        if period is not None:
            return now + timedelta(hours=int(period[1]) * _HOURS[period[2]])
        if len(text) == len("2026-12-31"):
            day = date.fromisoformat(text)
            if day >= now.date():
                return day
        else:
            moment = datetime.fromisoformat(text)
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
            if moment > now:
                return moment
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            "an expiry is a period (12h, 90d, 6w, 3m, 1y) or a day (2027-12-31), with a time (2027-12-31T18:00Z) or not"
        ) from None
    raise argparse.ArgumentTypeError(f"{text} is over already")


def _parser() -> console.Parser:
    parser = console.Parser(
        prog="moonshim keys",
        usage=_USAGE,
        description="Who may use the gateway: make a key, list the keys, take one away.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, summary, act in (
        ("new", "make a key, show it once, and keep its digest", _new),
        ("list", "show the keys there are, with their limits", _list),
        ("revoke", "take a key away", _revoke),
    ):
        action = actions.add_parser(
            name,
            help=summary,
            prog=f"moonshim keys {name}",
            usage=_USAGE,
            description=f"{summary[0].upper()}{summary[1:]}.",
        )
        action.set_defaults(act=act)
        if act is not _list:
            action.add_argument(
                "name", metavar="NAME", type=_name if act is _new else str, help="what the key is called"
            )
        if act is _new:
            add = action.add_argument
            add("--models", metavar="PATTERN", nargs="+", type=_pattern, help="the models it may ask for (all)")
            add("--expires", metavar="WHEN", type=_expiry, help="90d, 12h, 2027-12-31 (never)")
            add("--rpm", metavar="N", type=_limit, help="requests per minute (no limit)")
            add("--tpm", metavar="N", type=_limit, help="tokens per minute (no limit)")
            add("--streams", metavar="N", type=_limit, help="streams at the same time (no limit)")
            add("--print", action="store_true", help="change no file: print the block")
        action.add_argument("--config", metavar="FILE", help="the configuration file")
    return parser
