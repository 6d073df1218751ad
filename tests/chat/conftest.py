"""The simulator beside the chat, with a model that plays what the tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moonshim.simulator import Simulator
from tests.chat.player import Player


@pytest.fixture(scope="module")
def host() -> Iterator[Simulator]:
    with Simulator(model=Player(), behaviour="selfhost").running() as server:
        yield server
