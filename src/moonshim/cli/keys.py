"""`moonshim keys`: creates, lists and revokes gateway keys; the configuration stores only their digests."""

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
from moonshim.cli.suggest import suggest
from moonshim.config import ConfigError, FoundConfig, GatewayKey, load_keys, look_for_config, new_config_path
from moonshim.config.files.find import NoSuchConfig
from moonshim.config.files.locked_files import locked
from moonshim.config.files.source_file import read_text
from moonshim.config.tables.gateway_keys import RIGHTS
from moonshim.config.trust import remember, trusted_snapshot
from moonshim.gateway.inbound.auth import new_key
from moonshim.usage.budgets import describe_budget

__all__ = ["main", "parser"]

_USAGE: Final = """moonshim keys new NAME [OPTIONS]
       moonshim keys list [--config FILE]
       moonshim keys revoke NAME [--config FILE]"""
_EPILOG: Final = """\
Clients send a key as their API key: `Authorization: Bearer msk_…` or
`x-api-key: msk_…`. Without --config, keys are stored in the configuration that
`moonshim serve` loads. If there is none, `moonshim keys new` creates the file
that --config or MOONSHIM_CONFIG names, or moonshim.toml in your configuration
folder. A running gateway applies a change within two seconds. Restart a gateway
that was started without a configuration file.

examples:
  moonshim keys new alice
  moonshim keys new ci --models 'kimi-*' --expires 90d --rpm 60 --tpm 200000
  moonshim keys list
  moonshim keys revoke alice

exit codes:
  0  done
  1  failed; the reason is printed
  2  invalid command line or configuration"""
_NEW_ABOUT: Final = """\
Create a key and print it to standard output. It is shown only once: the
configuration stores its digest. Clients need a key from then on."""
_NEW_EPILOG: Final = """\
examples:
  moonshim keys new alice
  moonshim keys new ci --models 'kimi-*' 'k3*' --expires 90d --streams 4
  moonshim keys new intern --budget-day 5.00 --budget-month 60.00
  moonshim keys new bob --print          change the configuration yourself"""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", re.ASCII)
_AMOUNT: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)
_PERIOD: Final = re.compile(r"([1-9][0-9]{0,4})([hdwmy])", re.ASCII)
_HOURS: Final = {"h": 1, "d": 24, "w": 7 * 24, "m": 30 * 24, "y": 365 * 24}


def main(argv: Sequence[str]) -> int:
    """Run `moonshim keys`; return the exit code."""
    given = parser().parse_args(list(argv))
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
        "rights": given.right,
    }
    limits = {"day": given.budget_day, "month": given.budget_month}
    budgets = [{"period": period, "limit": limit} for period, limit in limits.items() if limit is not None]
    optional["budgets"] = budgets or None
    entry |= {field: value for field, value in optional.items() if value is not None}
    found = _find_config(given) or FoundConfig(new_config_path(given.config, os.environ, Path.cwd()), needs_trust=False)
    path = found.path
    if given.print:
        key, entry["digest"] = new_key()
        in_json = path.exists() and KeyFile(path).is_json
        print(f"{key}\n\n{block_of(entry, in_json=in_json)}", end="", flush=True)
        place, required = "the configuration", "`require_keys = true` under `[gateway]`"
        if in_json:
            place, required = "the `keys` list of the configuration", '`"require_keys": true` in the `gateway` object'
        console.print_note(
            f"moonshim keys: the first line is the key, shown only this once. Add the rest to {place}, "
            f"and set {required}"
        )
        return console.DONE
    with _edit_key_file(found) as file:
        created = file is None
        names = [] if file is None else [known.name for known in load_keys(path, os.environ, file.text)]
        if given.name.lower() in map(str.lower, names):
            raise CannotEdit(f"key {given.name!r} already exists; revoke it first, or choose another name")
        key, entry["digest"] = new_key()
        (file or create_file(path)).add(entry)
    # After writing: a key that could not be stored must not be handed out.
    print(key, flush=True)
    console.print_note(f"moonshim keys: created key {given.name!r}, shown only this once; {path} stores its digest")
    if created:
        console.print_note(
            f"moonshim keys: created {path}; `moonshim serve` loads it, and takes its providers from the environment"
        )
    if not names:
        console.print_note(
            "moonshim keys: this is the first key: every request now needs a key (`require_keys = true`)"
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
    rows = [
        ("NAME", "MODELS", "EXPIRES", "REQ/MIN", "TOK/MIN", "STREAMS", "BUDGETS", "RIGHTS", "DIGEST"),
        *map(_row, keys),
    ]
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
        expires = f"expired {expires}"
    limits = (key.requests_per_minute, key.tokens_per_minute, key.concurrent_streams)
    return (
        console.safe(key.name),
        console.safe(", ".join(key.models)) or "all",
        expires,
        *("-" if limit is None else f"{limit:,}" for limit in limits),
        console.safe(", ".join(map(describe_budget, key.budgets))) or "-",
        ", ".join(key.rights) or "-",
        key.digest.partition(":")[2][:8] + "…",  # enough to distinguish two keys
    )


def _revoke(given: argparse.Namespace) -> int:
    found = _require_config(given)
    path = found.path
    with _edit_key_file(found) as file:
        names = [] if file is None else [key.name for key in load_keys(path, os.environ, file.text)]
        if file is None or given.name not in names:
            near = difflib.get_close_matches(given.name, names, n=3)
            hint = (
                f" (did you mean {' or '.join(map(repr, near))}?)"
                if near
                else "; run `moonshim keys list` to see the keys"
            )
            raise CannotEdit(f"no key {given.name!r} in {path}{hint}")
        file.remove(given.name)
    console.print_note(f"moonshim keys: revoked key {given.name!r} in {path}")
    if len(names) == 1:
        console.print_note(
            "moonshim keys: this was the last key: every request is refused until you create another one. To serve "
            "this machine without keys, remove `require_keys` and `keys` from the file and restart the gateway"
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
                raise CannotEdit(f"{path}: the file was changed by another process; try again")
            yield file
            if trusted is not None and file is not None:
                remember(replace(trusted, text=file.text), os.environ)
    except OSError as error:
        what = "change" if path.exists() else "create"
        raise CannotEdit(f"{path}: cannot {what} this file: {error.strerror}") from None


def _find_config(given: argparse.Namespace) -> FoundConfig | None:
    """The file that `moonshim serve` would load, if there is one."""
    try:
        return look_for_config(given.config, os.environ, Path.cwd())
    except NoSuchConfig:
        return None


def _require_config(given: argparse.Namespace) -> FoundConfig:
    found = look_for_config(given.config, os.environ, Path.cwd())
    if found is None:
        raise CannotEdit("no configuration file found; create one with `moonshim keys new NAME`, or pass --config FILE")
    return found


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            "expected up to 64 letters, digits and . _ @ + - starting with a letter or a digit"
        )
    return text


def _pattern(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError("expected a model name or a pattern such as kimi-*")
    return text.strip()


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text[:12]) > 0 and len(text) <= 12):
        raise argparse.ArgumentTypeError(f"expected an integer from 1 to 999999999999, got {text[:40]!r}")
    return int(text)


def _amount(text: str) -> str:
    if not _AMOUNT.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected an amount such as 5.00, got {text[:40]!r}")
    return text


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
            "expected a period (12h, 90d, 6w, 3m, 1y), a date (2027-12-31) or a time (2027-12-31T18:00Z)"
        ) from None
    raise argparse.ArgumentTypeError(f"{text} is in the past")


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim keys",
        usage=_USAGE,
        description="Manage the keys that clients need to use the gateway.",
        epilog=_EPILOG,
    )
    actions = made.add_subparsers(title="actions", prog="moonshim keys", metavar="ACTION", required=True)
    new = actions.add_parser(
        "new",
        help="create a key and print it once",
        usage="moonshim keys new NAME [OPTIONS]",
        description=_NEW_ABOUT,
        epilog=_NEW_EPILOG,
    )
    new.set_defaults(act=_new)
    new.add_argument("name", metavar="NAME", type=_name, help="name of the key, shown in logs and metrics")
    limits = new.add_argument_group("limits").add_argument
    limits("--models", metavar="PATTERN", nargs="+", type=_pattern, help="models that it may use (default: all)")
    limits("--expires", metavar="WHEN", type=_expiry, help="expiry: 90d, 12h, 2027-12-31 (default: never)")
    limits("--rpm", metavar="N", type=_limit, help="requests per minute (default: no limit)")
    limits("--tpm", metavar="N", type=_limit, help="tokens per minute (default: no limit)")
    limits("--streams", metavar="N", type=_limit, help="concurrent streams (default: no limit)")
    new.add_argument_group("rights").add_argument(
        "--right",
        choices=RIGHTS,
        action="append",
        help="usage: see the usage of all keys, not only its own; inspect: open the inspector (repeatable)",
    )
    limits("--budget-day", metavar="AMOUNT", type=_amount, help="dollars per day (UTC): 5.00 (default: no limit)")
    limits("--budget-month", metavar="AMOUNT", type=_amount, help="dollars per month (UTC) (default: no limit)")
    where = new.add_argument_group("where to store it")
    where.add_argument("--print", action="store_true", help="change no file: print the key and the block to add")
    listed = actions.add_parser(
        "list",
        help="list the keys and their limits",
        usage="moonshim keys list [--config FILE]",
        description="List the keys with their models, expiry, limits and the start of their digest.",
    )
    listed.set_defaults(act=_list)
    revoke = actions.add_parser(
        "revoke",
        help="remove a key",
        usage="moonshim keys revoke NAME [--config FILE]",
        description="Remove a key. Requests that use it are refused from then on.",
    )
    revoke.set_defaults(act=_revoke)
    revoke.add_argument("name", metavar="NAME", help="name of the key")
    for action in (where, listed, revoke):
        suggest(
            action.add_argument(
                "--config", metavar="FILE", help="configuration file (default: the one that `moonshim serve` loads)"
            ),
            "files",
        )
    return made
