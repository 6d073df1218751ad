"""The results of the matrix -> a table with a row for each fault: through Moonshim, and directly at the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["table"]


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """
    >>> rows = [{"fault": "split-bytes", "mended": "correct", "direct": "broken"},
    ...         {"fault": "split-bytes", "mended": "correct"}]
    >>> print(*table(rows), sep="\\n")  # doctest: -NORMALIZE_WHITESPACE
    fault                                through Moonshim             without Moonshim
    split-bytes                          2 of 2 correct               1 of 1 broken
    """
    yield f"{'fault':<36} {'through Moonshim':<28} without Moonshim"
    for fault in sorted({str(row["fault"]) for row in rows}):
        own = [row for row in rows if row["fault"] == fault]
        mended = [row["mended"] for row in own if "mended" in row]
        direct = [row["direct"] for row in own if "direct" in row]
        good = [said for said in mended if said in ("correct", "failed as expected")]
        what = "failed as expected" if "failed as expected" in mended else "correct"
        shown = f"{len(good)} of {len(mended)} {what}" if mended else ""
        beside = f"{direct.count('broken')} of {len(direct)} broken" if direct else ""
        yield f"{fault:<36} {shown:<28} {beside}".rstrip()
