"""What every store does, whatever it is made of: one suite for all three, with a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import pytest

from moonshim.store import MOST_ENTRIES
from tests.store.opened import Opened

Runs: TypeAlias = Callable[[Callable[[Opened], Awaitable[None]]], None]

KEYS: Final = {
    "plain": "recall:local:abc",
    "empty": "",
    "with spaces and a line": "a b\nc\r\n",
    "of another script": "клавиша 鍵 🗝",
    "with a null": "a\0b",
    "with half a character": "a\ud83d",
    "long": "k" * 5000,
    "like a pattern": "*?[a-z]%_'\"",
}
VALUES: Final = {
    "empty": b"",
    "any bytes": bytes(range(256)),
    "a mebibyte": b"moon" * (256 * 1024),
}
Step: TypeAlias = tuple[str, tuple[Any, ...], Any]
BEHAVIOURS: Final[dict[str, list[Step]]] = {
    "what was never put is not there": [
        ("get", ("a",), None),
        ("entries", ("a",), {}),
        ("delete", ("a",), False),
        ("release", ("a", "me"), None),
        ("touch", (["a"], 60), None),
        ("get", ("a",), None),
    ],
    "the last value counts": [
        ("put", ("a", b"1", 60), None),
        ("put", ("a", b"2", None), None),
        ("get", ("a",), b"2"),
    ],
    "a new value yields to one that is there": [
        ("put_new", ("a", b"1", 60), b"1"),
        ("put_new", ("a", b"2", 60), b"1"),
        ("put_new", ("b", b"", None), b""),
        ("put_new", ("b", b"3", None), b""),
        ("get", ("a",), b"1"),
    ],
    "many are got in the order asked": [
        ("put", ("a", b"1", 60), None),
        ("put", ("c", b"3", 60), None),
        ("get_many", (["c", "b", "a", "c"],), [b"3", None, b"1", b"3"]),
        ("get_many", ([],), []),
        ("touch", ([], 60), None),
    ],
    "deleting tells whether there was anything": [
        ("put", ("a", b"1", 60), None),
        ("delete", ("a",), True),
        ("delete", ("a",), False),
        ("get", ("a",), None),
    ],
    "deleting takes entries, counters and leases along": [
        ("put_entry", ("a", "x", b"1", 60), None),
        ("add", ("a", 5, 60), 5),
        ("lease", ("a", "me", 1, 60), True),
        ("delete", ("a",), True),
        ("entries", ("a",), {}),
        ("add", ("a", 1, 60), 1),
        ("lease", ("a", "you", 1, 60), True),
    ],
    "one key has a value, entries, a counter and leases beside each other": [
        ("put", ("a", b"value", 60), None),
        ("put_entry", ("a", "x", b"entry", 60), None),
        ("add", ("a", 7, 60), 7),
        ("lease", ("a", "me", 1, 60), True),
        ("get", ("a",), b"value"),
        ("entries", ("a",), {"x": b"entry"}),
        ("add", ("a", 0, 60), 7),
    ],
    "entries stand beside each other, the last of a name counts": [
        ("put_entry", ("a", "x", b"1", 60), None),
        ("put_entry", ("a", "y", b"2", 60), None),
        ("put_entry", ("a", "x", b"3", 60), None),
        ("put_entry", ("b", "x", b"4", 60), None),
        ("entries", ("a",), {"x": b"3", "y": b"2"}),
        ("entries_many", (["b", "c", "a", "b"],), [{"x": b"4"}, {}, {"x": b"3", "y": b"2"}, {"x": b"4"}]),
        ("entries_many", ([],), []),
    ],
    "a counter sums up, down too": [
        ("add", ("a", 5, 60), 5),
        ("add", ("a", -2, 60), 3),
        ("add", ("b", 1, 60), 1),
    ],
    "a lease has so many holders and not one more": [
        ("lease", ("a", "one", 2, 60), True),
        ("lease", ("a", "two", 2, 60), True),
        ("lease", ("a", "three", 2, 60), False),
        ("lease", ("a", "one", 2, 60), True),
        ("release", ("a", "two"), None),
        ("release", ("a", "two"), None),
        ("lease", ("a", "three", 2, 60), True),
        ("lease", ("a", "two", 2, 60), False),
        ("lease", ("b", "two", 2, 60), True),
        ("lease", ("c", "two", 0, 60), False),
    ],
}


@pytest.mark.parametrize("steps", BEHAVIOURS.values(), ids=BEHAVIOURS.keys())
def test_behaviour(with_store: Runs, steps: list[Step]) -> None:
    async def test(one: Opened) -> None:
        # Every second step by another connection: what one has written, the other reads.
        for number, (method, args, expected) in enumerate(steps):
            store = one.other if number % 2 else one.store
            assert await getattr(store, method)(*args) == expected, (number, method)

    with_store(test)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_any_text_is_a_key_a_field_and_a_holder(with_store: Runs, key: str) -> None:
    async def test(one: Opened) -> None:
        store = one.store
        await store.put(key, b"value", 60)
        await store.put(key + "!", b"another", 60)
        await store.put_entry(key, key, b"entry", 60)
        assert await store.get_many([key, key + "!", key + "?"]) == [b"value", b"another", None]
        assert await store.entries(key) == {key: b"entry"}
        assert await store.add(key, 1, 60) == 1
        assert await store.lease(key, key, 1, 60)
        assert not await store.lease(key, key + "!", 1, 60)
        assert await store.delete(key)
        assert await store.get_many([key, key + "!"]) == [None, b"another"]

    with_store(test)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_any_bytes_come_back_as_they_were(with_store: Runs, value: bytes) -> None:
    async def test(one: Opened) -> None:
        await one.store.put("a", value, 60)
        await one.store.put_entry("a", "x", value, 60)
        assert await one.other.get("a") == value
        assert await one.other.put_new("a", b"other", 60) == value
        assert await one.other.entries("a") == {"x": value}

    with_store(test)


def test_a_thousand_keys_are_got_at_once(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        keys = [f"k{number}" for number in range(1000)]
        for key in keys[::2]:
            await asyncio.gather(one.store.put(key, key.encode(), 60), one.store.put_entry(key, "x", key.encode(), 60))
        assert await one.other.get_many(keys) == [k.encode() if n % 2 == 0 else None for n, k in enumerate(keys)]
        assert (await one.other.entries_many(keys))[998:] == [{"x": b"k998"}, {}]

    with_store(test)


# --- time -------------------------------------------------------------------------------------------------------

SHORT: Final = 0.15
LONGER: Final = 0.5
"""For what has to be done within that time, on a machine that is busy."""


def test_a_value_is_gone_after_its_time_and_a_new_one_takes_its_place(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        await one.store.put("short", b"1", SHORT)
        await one.store.put_new("new", b"1", SHORT)
        await one.store.put("long", b"1", 600)
        await one.store.put("for good", b"1", None)

        async def is_over() -> bool:
            return await one.store.get_many(["short", "new"]) == [None, None]

        await one.passes(SHORT, is_over)
        assert await one.store.get_many(["long", "for good"]) == [b"1", b"1"]
        assert not await one.store.delete("short")
        assert await one.store.put_new("new", b"2", 60) == b"2"

    with_store(test)


def test_a_value_that_is_put_again_has_its_new_time(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        await one.store.put("longer", b"1", SHORT)
        await one.store.put("longer", b"2", 600)
        await one.store.put("other", b"1", SHORT)

        async def is_over() -> bool:
            return await one.store.get("other") is None

        await one.passes(SHORT, is_over)
        assert await one.store.get("longer") == b"2"

    with_store(test)


def test_touching_gives_new_time_to_what_is_there_and_leaves_what_is_for_good(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        await one.store.put("for good", b"1", None)
        await one.store.touch(["for good"], LONGER)
        await one.store.put("touched", b"1", LONGER)
        await one.store.put("untouched", b"1", LONGER)
        await one.store.touch(["touched", "absent"], 600)

        async def is_over() -> bool:
            return await one.store.get("untouched") is None

        await one.passes(LONGER, is_over)
        assert await one.store.get_many(["touched", "for good", "absent"]) == [b"1", b"1", None]

    with_store(test)


def test_every_entry_gives_the_whole_key_new_time(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        await one.store.put_entry("kept", "x", b"1", LONGER)
        await one.store.put_entry("over", "x", b"1", LONGER)
        await one.store.put_entry("kept", "y", b"2", 600)

        async def is_over() -> bool:
            return await one.store.entries("over") == {}

        await one.passes(LONGER, is_over)
        assert await one.store.entries("kept") == {"x": b"1", "y": b"2"}
        await one.store.put_entry("over", "y", b"2", 60)
        assert await one.store.entries("over") == {"y": b"2"}

    with_store(test)


def test_entries_without_a_time_stay_and_are_one_of_several(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        for number in range(3):
            await one.store.put_entry("a", str(number), b"%d" % number, None)
        assert await one.other.entries("a") == {str(number): b"%d" % number for number in range(3)}
        assert await one.store.delete("a")
        assert await one.other.entries("a") == {}

    with_store(test)


def test_the_time_of_a_counter_runs_from_its_first_amount(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        assert await one.store.add("a", 5, SHORT) == 5
        assert await one.store.add("a", 5, 600) == 10

        async def is_over() -> bool:
            return await one.store.add("a", 1, 600) < 11

        await one.passes(SHORT, is_over)
        assert await one.store.add("a", 0, 600) == 1

    with_store(test)


def test_a_lease_that_is_not_renewed_is_free_again(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        assert await one.store.lease("a", "renewed", 2, SHORT)
        assert await one.store.lease("a", "forgotten", 2, SHORT)
        assert await one.store.lease("a", "renewed", 2, 600)

        async def is_over() -> bool:
            return await one.store.lease("a", "next", 2, 600)

        await one.passes(SHORT, is_over)
        assert not await one.store.lease("a", "forgotten", 2, 600)
        assert await one.store.lease("a", "renewed", 2, 600)

    with_store(test)


# --- several at once --------------------------------------------------------------------------------------------


def test_of_many_who_put_a_new_value_at_once_all_get_the_same(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        for key in ("a", "b", "c"):
            got = await asyncio.gather(
                *((one.store, one.other)[n % 2].put_new(key, str(n).encode(), None) for n in range(20))
            )
            assert len(set(got)) == 1
            assert await one.store.get(key) == got[0]

    with_store(test)


def test_no_amount_is_lost_when_many_add_at_once(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        sums = await asyncio.gather(*((one.store, one.other)[n % 2].add("a", 1, 60) for n in range(100)))
        assert sorted(sums) == list(range(1, 101))

    with_store(test)


def test_of_many_who_want_a_lease_at_once_just_so_many_get_it(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        got = await asyncio.gather(*((one.store, one.other)[n % 2].lease("a", f"holder {n}", 3, 60) for n in range(40)))
        assert sum(got) == 3
        for n, has in enumerate(got):
            assert await one.store.lease("a", f"holder {n}", 3, 60) is has

    with_store(test)


def test_entries_of_many_writers_are_all_there(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        await asyncio.gather(
            *((one.store, one.other)[n % 2].put_entry("a", str(n), b"%d" % n, 60) for n in range(MOST_ENTRIES))
        )
        assert await one.store.entries("a") == {str(n): b"%d" % n for n in range(MOST_ENTRIES)}

    with_store(test)


# --- bounds -----------------------------------------------------------------------------------------------------


def test_a_key_has_a_bounded_number_of_entries_and_keeps_the_newest(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        await one.store.put_entry("a", "first", b"1", 60)
        for number in range(MOST_ENTRIES * 3):
            await one.store.put_entry("a", str(number), b"%d" % number, 60)
        left = await one.store.entries("a")
        assert MOST_ENTRIES // 2 < len(left) <= MOST_ENTRIES
        assert str(MOST_ENTRIES * 3 - 1) in left
        assert "first" not in left

    with_store(test)


def test_a_store_answers_that_it_can_be_written(with_store: Runs) -> None:
    async def test(one: Opened) -> None:
        await one.store.ping()

    with_store(test)
