"""What clients remember: bounded, the least used first, and whole in every thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from moonshim.errors import InvalidInput
from moonshim.integrations import Memory

KIB = 1024


def test_what_was_put_is_there_by_key_and_field() -> None:
    memory = Memory()
    memory.put("a", "1", b"one")
    memory.put("a", "2", b"two")
    assert memory.get("a") == {"1": b"one", "2": b"two"}
    assert memory.get("b") == {}


def test_what_was_not_used_for_the_longest_time_goes_first() -> None:
    memory = Memory(10 * KIB)
    for key in "abc":
        memory.put(key, "", bytes(2 * KIB))
    assert memory.get("a")
    memory.put("d", "", bytes(4 * KIB))
    assert [key for key in "abcd" if memory.get(key)] == ["a", "c", "d"]


def test_its_size_is_never_over_the_limit() -> None:
    memory = Memory(16 * KIB)
    for number in range(500):
        memory.put(str(number % 90), str(number % 7), bytes(number))
        assert memory.size <= 16 * KIB
    memory.put("more than it may hold", "", bytes(17 * KIB))
    assert memory.get("more than it may hold") == {}
    assert memory.size == 0


def test_a_field_that_is_written_again_counts_once() -> None:
    memory = Memory()
    memory.put("a", "1", bytes(100))
    before = memory.size
    memory.put("a", "1", bytes(100))
    assert memory.size == before


def test_one_key_cannot_grow_without_end() -> None:
    memory = Memory()
    for number in range(1000):
        memory.put("a", str(number), b"x")
    kept = memory.get("a")
    assert len(kept) == 64
    assert "999" in kept


def test_nothing_is_remembered_where_nothing_may_be() -> None:
    memory = Memory(0)
    memory.put("a", "1", b"one")
    assert memory.get("a") == {}


@pytest.mark.parametrize("limit", [-1, "64 MiB"])
def test_a_limit_is_a_number_of_bytes(limit: int) -> None:
    with pytest.raises(InvalidInput, match="bytes"):
        Memory(limit)


def test_threads_do_not_disturb_each_other() -> None:
    memory = Memory(64 * KIB)

    def work(thread: int) -> None:
        for number in range(2000):
            memory.put(f"{thread}:{number % 50}", str(number % 3), bytes(number % 200))
            memory.get(f"{(thread + 1) % 8}:{number % 50}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert 0 < memory.size <= 64 * KIB
    for key in list(memory._items):  # what it counts is what it holds
        memory.put(key, "0", b"")
    memory.put("all", "", bytes(63 * KIB))
    assert memory.get("all")
