"""Two commits -> whether the engine became slower: both are measured in turn, and each pair of runs gives one ratio.

    python -m bench.compare OLD [NEW] --bench "--quick --tables mender" --pairs 7 --limit 1.03

Theory of operation. The speed of a machine changes by more than the few percent in question, but slowly: two runs in
sequence meet nearly the same machine. So the commits alternate, the first of each pair alternates too, and only the
ratio of the two runs of a pair counts. A row is slower if the whole interquartile range of its ratios is above the
limit. One outlier moves neither end of that range, and noise alone spreads it over both sides of 1.

Both commits run the benchmark of this checkout, with `moonshim` from their own sources: the workload is the same, and a
commit from before this script can be measured. The default tables use public names only.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent
BENCH: Final = "--quick --tables mender renamed crossing"
MIN_PAIRS: Final = 7
MAX_RATIO: Final = 1.03


class Ratio(msgspec.Struct, frozen=True):
    """The new CPU time of one row divided by the old one, over all pairs."""

    median: float
    low: float
    """The first quartile."""
    high: float
    """The third quartile."""

    @classmethod
    def of(cls, old: Sequence[float], new: Sequence[float]) -> Self:
        """The figures of the same row, pair by pair.

        >>> Ratio.of([1.0, 2.0, 1.0], [1.1, 2.2, 9.0]).median
        1.1
        """
        low, median, high = statistics.quantiles(
            [after / before for before, after in zip(old, new, strict=True)], n=4, method="inclusive"
        )
        return cls(median, low, high)

    def is_slower(self, limit: float) -> bool:
        return self.low > limit


def compare(pairs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> dict[str, Ratio]:
    """The ratio of every row that both commits have, from the figures (old, new) of each pair of runs."""
    old, new = pairs[0]
    return {row: Ratio.of([one[row] for one, _ in pairs], [one[row] for _, one in pairs]) for row in old if row in new}


def table(ratios: dict[str, Ratio], limit: float) -> str:
    width = max(len(row) for row in ratios)
    lines = [f"{'new / old':{width}}{'median':>9}{'quartiles':>16}  verdict"]
    for row, ratio in ratios.items():
        verdict = "slower" if ratio.is_slower(limit) else "faster" if ratio.high < 1 / limit else "-"
        lines.append(f"{row:{width}}{ratio.median:>9.3f}{f'{ratio.low:.3f} - {ratio.high:.3f}':>16}  {verdict}")
    return "\n".join(lines)


@contextmanager
def checkouts(*commits: str) -> Iterator[list[Path]]:
    """A git worktree of each commit, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="moonshim-bench-") as folder:
        paths = [Path(folder, str(number)) for number in range(len(commits))]
        try:
            for path, commit in zip(paths, commits, strict=True):
                _git("worktree", "add", "--quiet", "--detach", str(path), commit)
            yield paths
        finally:
            for path in paths:
                if path.exists():
                    _git("worktree", "remove", "--force", str(path))


def measure(checkout: Path, options: Sequence[str]) -> dict[str, float]:
    """The figures of the engine benchmark, with `moonshim` from the sources of a checkout."""
    source = checkout / "src"
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        program = (
            f"import moonshim; assert moonshim.__file__.startswith({str(source)!r}), moonshim.__file__;"
            f"from bench.run import main; main({[*options, '--json', file.name]!r})"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT))), "PYTHONSAFEPATH": "1"}
        subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL, check=True)
        return msgspec.json.decode(file.read(), type=dict[str, float])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.splitlines()[0])
    parser.add_argument("old", help="the commit to compare with")
    parser.add_argument("new", nargs="?", default="HEAD", help="the commit to judge (default: HEAD)")
    parser.add_argument("--bench", default=BENCH, help=f"options of bench.run (default: {BENCH!r})")
    parser.add_argument("--pairs", type=int, default=MIN_PAIRS, help=f"pairs of runs, at least {MIN_PAIRS}")
    parser.add_argument("--limit", type=float, default=MAX_RATIO, help=f"largest ratio (default: {MAX_RATIO})")
    options = parser.parse_args(arguments)
    if options.pairs < MIN_PAIRS:
        parser.error(f"--pairs {options.pairs}: fewer than {MIN_PAIRS} pairs do not show the spread")

    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    bench = shlex.split(options.bench)
    try:
        with checkouts(options.old, options.new) as (old, new):
            for number in range(options.pairs):
                first, second = (old, new) if number % 2 == 0 else (new, old)
                figures = {first: measure(first, bench), second: measure(second, bench)}
                pairs.append((figures[old], figures[new]))
                print(f"pair {number + 1} of {options.pairs}", file=sys.stderr)
    except subprocess.CalledProcessError as error:
        print(f"bench.compare: {shlex.join(error.cmd[:4])} failed, nothing was compared", file=sys.stderr)
        return 2
    ratios = compare(pairs)
    print(table(ratios, options.limit))
    return 1 if any(ratio.is_slower(options.limit) for ratio in ratios.values()) else 0


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
