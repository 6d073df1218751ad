"""The name of a test profile -> how many examples hypothesis tries, and whether they are always the same ones."""

from __future__ import annotations

import os
import random
from typing import Final

from hypothesis import HealthCheck, settings

PROFILE: Final = os.environ.get("MOONSHIM_TEST_PROFILE", "full")

_EXAMPLES: Final = {"quick": 20, "full": 150, "explore": 1500}
"""`quick` and `full` try the same examples every time: red here is red everywhere. `explore` looks for new ones."""

SEED: Final = os.environ.setdefault(
    "MOONSHIM_TEST_SEED", str(random.SystemRandom().randrange(10**9)) if PROFILE == "explore" else "0"
)
"""For tests with dice of their own: a new one in every run of `explore`. Set in the environment, so that the processes
of a parallel run agree; set it yourself to repeat a run."""


def examples(count: int) -> int:
    """For a test that needs its own number of examples: `count` in a full run, in proportion in the others.

    >>> examples(10_000) >= 1
    True
    """
    return max(1, count * _EXAMPLES[PROFILE] // _EXAMPLES["full"])


def load() -> None:
    """Register all profiles and load the one that MOONSHIM_TEST_PROFILE names."""
    if PROFILE not in _EXAMPLES:
        raise ValueError(f"MOONSHIM_TEST_PROFILE is {PROFILE!r}; it can be {', '.join(_EXAMPLES)}")
    for name, count in _EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=count,
            derandomize=name != "explore",
            # With two busy cores, the duration of one example means nothing. Speed has its own tests and benchmark.
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            print_blob=True,
        )
    settings.load_profile(PROFILE)
