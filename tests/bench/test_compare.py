"""The comparison of two commits: what counts as slower."""

from __future__ import annotations

import random
import subprocess

import pytest

from bench.compare import ROOT, Ratio, checkouts, compare, main, measure, table

PAIRS = 7


@pytest.mark.parametrize(
    ("ratios", "median", "low", "high", "is_slower"),
    [
        ([1.0] * 7, 1.0, 1.0, 1.0, False),
        ([1.05] * 7, 1.05, 1.05, 1.05, True),
        ([1.03] * 7, 1.03, 1.03, 1.03, False),
        # One outlier on either side decides nothing.
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0], 1.0, 1.0, 1.0, False),
        ([0.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1], 1.1, 1.1, 1.1, True),
        # The median is above the limit, but a quarter of the pairs is not.
        ([1.0, 1.01, 1.02, 1.06, 1.07, 1.08, 1.09], 1.06, 1.015, 1.075, False),
        ([1.01, 1.04, 1.05, 1.06, 1.07, 1.08, 1.09], 1.06, 1.045, 1.075, True),
    ],
)
def test_slower_means_the_whole_interquartile_range(
    ratios: list[float], median: float, low: float, high: float, is_slower: bool
) -> None:
    ratio = Ratio.of([2.0] * PAIRS, [2.0 * one for one in ratios])
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((median, low, high))
    assert ratio.is_slower(1.03) is is_slower


def test_a_machine_that_gets_slower_between_the_pairs_changes_no_ratio() -> None:
    speeds = [1.0, 1.2, 1.5, 2.0, 1.1, 3.0, 1.7]
    ratios = compare([({"row": 5 * speed}, {"row": 5.5 * speed}) for speed in speeds])
    assert (ratios["row"].low, ratios["row"].high) == pytest.approx((1.1, 1.1))


def test_noise_alone_is_not_slower() -> None:
    chance = random.Random(4)
    alarms = 0
    for _ in range(1_000):
        old, new = ([chance.gauss(1.0, 0.03) for _ in range(PAIRS)] for _ in range(2))
        alarms += Ratio.of(old, new).is_slower(1.03)
    assert alarms < 10


def test_rows_that_only_one_commit_has_are_left_out() -> None:
    assert compare([({"both": 1.0, "old": 1.0}, {"both": 2.0, "new": 1.0})] * PAIRS).keys() == {"both"}


def test_the_table_names_what_became_slower() -> None:
    ratios = {"mender: a": Ratio(1.1, 1.06, 1.2), "mender: b": Ratio(1.0, 0.9, 1.1), "mender: c": Ratio(0.8, 0.7, 0.9)}
    assert [line.split()[-1] for line in table(ratios, 1.03).splitlines()] == ["verdict", "slower", "-", "faster"]


def test_fewer_than_seven_pairs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["HEAD", "--pairs", "6"])
    assert "fewer than 7 pairs" in capsys.readouterr().err


def test_a_commit_is_measured_from_its_own_sources_and_its_checkout_removed() -> None:
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--quiet", "--verify", "HEAD"], check=False).returncode:
        pytest.skip("needs a git repository")
    with checkouts("HEAD") as (checkout,):
        figures = measure(checkout, ["--quick", "--tables", "renamed"])
        assert checkout.exists()
    assert figures.keys() == {"renamed: leaked call", "renamed: native call", "renamed: plain text"}
    assert all(0 < figure < 1_000 for figure in figures.values())
    assert not checkout.exists()
    listed = subprocess.run(["git", "-C", str(ROOT), "worktree", "list"], capture_output=True, text=True, check=True)
    assert str(checkout) not in listed.stdout


def test_an_unknown_commit_ends_with_2_and_leaves_nothing_behind(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-commit"]) == 2
    assert "nothing was compared" in capfd.readouterr().err
