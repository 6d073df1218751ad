"""A group of cases -> how many fail, by what is wrong; a number of the group -> its cases in full.

python -m tests.laws.marker_texts.show quotations
python -m tests.laws.marker_texts.show quotations 17
python -m tests.laws.marker_texts.show texts 17 reasoning
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from tests.laws.marker_texts import quotations, real_calls, texts
from tests.laws.marker_texts.cases import Case, Runner, describe

REQUESTS: Final = 640
"""Requests with a quoted call."""
REAL_CALLS: Final = 600
FENCED: Final = 60
PARSED: Final = 96
MIXED: Final = 120


def _quotations(group: str) -> Iterator[tuple[str, Case]]:
    for number in range(REQUESTS):
        if quotations.group(number) == group:
            yield from ((case.name.rpartition(": ")[2], case) for case in quotations.cases(number))


def _real() -> Iterator[tuple[str, Case]]:
    for number in range(REAL_CALLS):
        yield from ((case.name.rpartition(" in ")[2], case) for case in real_calls.cases(number))


def _texts() -> Iterator[tuple[str, Case]]:
    for form in texts.FORMS:
        for declared in (True, False):
            label = f"{form}, {'tools' if declared else 'no tools'}"
            yield from ((label, case) for case in texts.cases(form, declared=declared))


GROUPS: Final[dict[str, Callable[[], Iterator[tuple[str, Case]]]]] = {
    "quotations": lambda: _quotations("plain"),
    "quotations-escaped": lambda: _quotations("escaped"),
    "quotations-prefixed": lambda: _quotations("prefixed"),
    "real": _real,
    "fenced": lambda: (("fenced", real_calls.fenced(number)) for number in range(FENCED)),
    "mixed": lambda: ((case.name.rpartition(", ")[2], case) for case in map(real_calls.mixed, range(MIXED))),
    "parsing-host": lambda: (
        (case.name.rpartition(" in ")[2], case) for case in map(real_calls.at_a_parsing_host, range(PARSED))
    ),
    "texts": _texts,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("number", nargs="?", type=int)
    parser.add_argument("label", nargs="?", help="part of the name or of the label of the cases")
    parser.add_argument("--list", action="store_true", help="a line for every failing case")
    arguments = parser.parse_args()
    runner, found, total, failing = Runner(), Counter[str](), 0, 0
    for label, case in GROUPS[arguments.group]():
        if arguments.number is not None:
            if case.number == arguments.number and (arguments.label or "") in f"{label} {case.name}":
                sys.stdout.write(f"{describe(case, runner)}\n")
            continue
        total += 1
        wrong = runner.fault(case)
        if wrong is not None:
            failing += 1
            found[f"{label if arguments.group != 'real' else ''}  {wrong.partition(':')[0]}"] += 1
            if arguments.list:
                sys.stdout.write(f"{case.title}\n    {wrong}\n")
    if arguments.number is None:
        sys.stdout.write("".join(f"{count:6}  {what}\n" for what, count in sorted(found.items())))
        sys.stdout.write(f"{failing} of {total} fail\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
