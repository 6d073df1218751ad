"""The outcomes of talks -> a table: a line for each fault, through Moonshim and without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["table"]


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """
    >>> rows = [{"fault": "split-bytes", "mended": "right", "direct": "broke"},
    ...         {"fault": "split-bytes", "mended": "right"}]
    >>> print(*table(rows), sep="\\n")  # doctest: -NORMALIZE_WHITESPACE
    fault                              through Moonshim   straight at the host
    split-bytes                        2 of 2 right       broke in 1 of 1
    """
    yield f"{'fault':<34} {'through Moonshim':<18} straight at the host"
    for fault in sorted({str(row["fault"]) for row in rows}):
        own = [row for row in rows if row["fault"] == fault]
        mended = [row["mended"] for row in own if "mended" in row]
        direct = [row["direct"] for row in own if "direct" in row]
        good = [said for said in mended if said in ("right", "ended as it should")]
        what = "ended as they should" if "ended as it should" in mended else "right"
        shown = f"{len(good)} of {len(mended)} {what}" if mended else ""
        beside = f"broke in {direct.count('broke')} of {len(direct)}" if direct else ""
        yield f"{fault:<34} {shown:<18} {beside}".rstrip()
