"""A real client, launched in a terminal: pi, since it is small. `make test-clients ARGS=launch` has all of them."""

from __future__ import annotations

import sys

import pytest

from tests.clients.install import CannotInstall, find_node, install_launched
from tests.clients.launch.every_launched import LAUNCHED
from tests.clients.launch.run import LAUNCH_CASES, run_launch

PI = next(client for client in LAUNCHED if client.name == "pi")


@pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc")
def test_pi_works_through_the_gateway_and_leaves_the_user_s_settings_alone() -> None:
    try:
        programs = install_launched(PI, find_node())
    except CannotInstall as error:
        pytest.skip(f"pi cannot be installed: {error}")
    cases = [case for case in LAUNCH_CASES if case.fits(PI)]
    problems = {case.name: run_launch(PI, case, programs).problems for case in cases}
    assert problems == {case.name: () for case in cases}
