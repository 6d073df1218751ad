"""Measure the cost of mending, compared with the lowest possible cost in the same run: `make bench`."""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

import moonshim
from bench.requests import REQUESTS
from bench.workloads import (
    CHUNK,
    NAMES,
    TOOLS,
    arguments,
    as_messages,
    as_native,
    as_speech,
    marked_call,
    no_two_alike,
    plain_text,
)

SIZES = {"10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
FIGURES: Final[dict[str, float]] = {}
"""Microseconds of CPU time by table and row, per chunk or per request: what `--json` writes for `bench.compare`."""


def cpu(work: Callable[[], object], repeat: int) -> float:
    """The lowest CPU time of several runs, in seconds."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        gc.disable()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
        gc.enable()
    return best


def bare_loop(text: str) -> int:
    """The lower bound: split the text into chunks, and search each once."""
    kept = 0
    for start in range(0, len(text), CHUNK):
        chunk = text[start : start + CHUNK]
        if "<" in chunk:
            kept += 1
    return kept


def grammar_alone(text: str) -> None:
    # Not at the top: only this table needs a name from inside the engine, which another commit may not have.
    from moonshim.engine.grammar.kimi.k2 import KimiK2Grammar

    feed = (grammar := KimiK2Grammar("text", names=NAMES)).feed
    for start in range(0, len(text), CHUNK):
        feed(text[start : start + CHUNK])
    grammar.flush()


def decode_encode(frames: Iterable[bytes]) -> None:
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    for frame in frames:
        data = frame[frame.index(b"data: ") + 6 : -2]
        if data != b"[DONE]":
            encode(decode(data))


def mend(frames: Iterable[bytes]) -> None:
    mender = moonshim.Mender(model="kimi-k2.5", tools=TOOLS, collect=False)
    for frame in frames:
        mender.feed(frame)
    mender.flush()


def repeats(size: int) -> int:
    return 30 if size < 50_000 else 10 if size < 500_000 else 3 if size < 5_000_000 else 1


def grammar_table(sizes: dict[str, int]) -> None:
    print("The grammar alone, compared with a bare loop over the same chunks (target: at most 5 times)\n")
    print(f"{'':24}{'chunks':>10}{'loop':>12}{'grammar':>12}{'per chunk':>12}{'ratio':>8}")
    for kind, make in (("arguments", marked_call), ("plain text", plain_text)):
        for label, size in sizes.items():
            text, times = make(size), repeats(size)
            floor, cost = cpu(partial(bare_loop, text), times), cpu(partial(grammar_alone, text), times)
            row("grammar", f"{kind}, {label}", len(text) // CHUNK, floor, cost)
    print()


def mender_table(sizes: dict[str, int]) -> None:
    print("The complete mender, compared with one msgspec decode and encode per chunk (target: at most 2.5 times)\n")
    print(f"{'':24}{'chunks':>10}{'dec+enc':>12}{'mender':>12}{'per chunk':>12}{'ratio':>8}")
    kinds: tuple[tuple[str, Callable[[int], Iterable[bytes]]], ...] = (
        ("leaked call", lambda size: as_speech(marked_call(size))),
        ("native call", lambda size: as_native(arguments(size))),
        ("plain text", lambda size: as_speech(plain_text(size))),
    )
    for kind, make in kinds:
        for label, size in sizes.items():
            frames, times = list(make(size)), repeats(size)
            row(
                "mender",
                f"{kind}, {label}",
                len(frames),
                cpu(partial(decode_encode, frames), times),
                cpu(partial(mend, frames), times),
            )
    print()


def crossing_table(_sizes: dict[str, int]) -> None:
    print("100 KB of a host's stream, translated to another dialect, compared with one decode and encode per chunk")
    print("(target: at most 2.5 times, if the chunks are alike)\n")
    print(f"{'':56}{'chunks':>10}{'dec+enc':>12}{'mender':>12}{'per chunk':>12}{'ratio':>8}")
    hello = [{"role": "user", "content": "hi"}]
    bodies = {
        "anthropic": {"model": "m", "max_tokens": 9, "messages": hello},
        "openai_responses": {"model": "m", "input": "hi"},
        "openai_chat": {"model": "m", "messages": hello},
    }
    text = plain_text(100_000)
    kinds = {
        "leaked call": list(as_speech(marked_call(100_000))),
        "native call": list(as_native(arguments(100_000))),
        "plain text": list(as_speech(text)),
        "no two chunks alike": list(no_two_alike(as_speech(text))),
    }
    streams = [
        (f"{kind}, openai_chat to {client}", "openai_chat", client, frames)
        for client in ("anthropic", "openai_responses")
        for kind, frames in kinds.items()
    ]
    streams += [(f"plain text, anthropic to {one}", "anthropic", one, list(as_messages(text))) for one in bodies]
    for label, upstream, client, frames in streams:
        prepared = moonshim.prepare_request(
            bodies[client], dialect=client, upstream=upstream, host="vllm", model="kimi-k2.5"
        )
        floor, cost = cpu(partial(decode_encode, frames), 5), cpu(partial(cross, frames, prepared.plan), 5)
        row("crossing", label, len(frames), floor, cost, 56)
    print()


def renamed_table(_sizes: dict[str, int]) -> None:
    print("100 KB of a Chat host's stream with the model renamed for the client, compared with the same name")
    print("(target: at most 1.3 times)\n")
    print(f"{'':24}{'chunks':>10}{'same name':>12}{'renamed':>12}{'per chunk':>12}{'ratio':>8}")
    kinds = {
        "leaked call": list(as_speech(marked_call(100_000))),
        "native call": list(as_native(arguments(100_000))),
        "plain text": list(as_speech(plain_text(100_000))),
    }
    for kind, frames in kinds.items():
        plans = [
            moonshim.prepare_request(
                {"model": name, "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS},
                host="vllm",
                model="kimi-k2.5",
            ).plan
            for name in ("kimi-k2.5", "claude-sonnet-4-5")
        ]
        floor, cost = (cpu(partial(cross, frames, plan), 15) for plan in plans)
        row("renamed", kind, len(frames), floor, cost)
    print()


def cross(frames: Iterable[bytes], plan: moonshim.Plan) -> None:
    mender = moonshim.Mender(plan=plan, collect=False)
    for frame in frames:
        mender.feed(frame)
    mender.flush()


def row(table: str, label: str, chunks: int, floor: float, cost: float, width: int = 24) -> None:
    FIGURES[f"{table}: {label}"] = cost / chunks * 1e6
    print(
        f"{label:{width}}{chunks:>10,}{floor:>11.4f}s{cost:>11.4f}s{cost / chunks * 1e6:>10.2f}us{cost / floor:>8.2f}"
    )


def _again(data: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(data))


def request_table(_sizes: dict[str, int]) -> None:
    from moonshim.engine.dialects.registry import dialect_named
    from moonshim.engine.signing import Signer

    print("200 messages, 100 tools, 1 MB: a request parsed and rendered in its own dialect, compared with one msgspec")
    print("decode and encode of the same bytes (target: at most 4 times); and completely prepared for a host\n")
    print(f"{'':24}{'bytes':>12}{'dec+enc':>12}{'parse':>12}{'render':>12}{'ratio':>8}{'prepare':>12}")
    signer = Signer()
    for name, make in REQUESTS.items():
        data = msgspec.json.encode(make())
        body, dialect = msgspec.json.decode(data), dialect_named(name)
        request, _ = dialect.parse_request(body, signer)
        floor = cpu(partial(_again, data), 20)
        parse = cpu(partial(dialect.parse_request, body, signer), 20)
        render = cpu(partial(dialect.render_request, request), 20)
        prepare = cpu(partial(moonshim.prepare_request, body, dialect=name, host="moonshot"), 5)
        FIGURES[f"request: {name}, parse and render"] = (parse + render) * 1e6
        FIGURES[f"request: {name}, prepare"] = prepare * 1e6
        times = "".join(f"{one * 1000:>10.2f}ms" for one in (floor, parse, render))
        print(f"{name:24}{len(data):>12,}{times}{(parse + render) / floor:>8.2f}{prepare * 1000:>10.2f}ms")
    print()


def memory_table(_sizes: dict[str, int]) -> None:
    print("Peak memory of one stream with collect=False, above the start (target: less than 64 KiB)\n")
    kinds: tuple[tuple[str, Callable[[], Iterable[bytes]]], ...] = (
        ("leaked call, 1 MB", lambda: as_speech(marked_call(1_000_000))),
        ("native call, 1 MB", lambda: as_native(arguments(1_000_000))),
        ("plain text, 1 MB", lambda: as_speech(plain_text(1_000_000))),
    )
    for label, make in kinds:
        mend(make())  # what is made once for all streams
        frames = make()
        tracemalloc.start()
        mender = moonshim.Mender(model="kimi-k2.5", tools=TOOLS, collect=False)
        peak = 0
        start = tracemalloc.get_traced_memory()[0]
        tracemalloc.clear_traces()
        for frame in frames:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            mender.feed(frame)
            peak = max(peak, before, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        print(f"{label:24}{(start + peak) / 1024:>10.1f} KiB")
    print()


def startup_table(_sizes: dict[str, int]) -> None:
    print("Start-up time (targets: import less than 60 ms over bare Python, --help less than 150 ms in total)\n")

    def wall(*command: str) -> float:
        best = float("inf")
        for _ in range(10):
            started = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
            best = min(best, time.perf_counter() - started)
        return best * 1000

    bare = wall("-c", "pass")
    print(f"{'bare python':24}{bare:>8.1f} ms")
    print(f"{'import moonshim':24}{wall('-c', 'import moonshim') - bare:>8.1f} ms over bare python")
    print(f"{'moonshim --help':24}{wall('-m', 'moonshim', '--help'):>8.1f} ms in total\n")


TABLES: Final = {
    "grammar": grammar_table,
    "mender": mender_table,
    "renamed": renamed_table,
    "crossing": crossing_table,
    "request": request_table,
    "memory": memory_table,
    "startup": startup_table,
}


def main(arguments_given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="skip the 10 MB inputs")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="measure only these")
    parser.add_argument("--json", type=Path, help="also write the CPU times of all rows to this file, in microseconds")
    options = parser.parse_args(arguments_given)
    sizes = {label: size for label, size in SIZES.items() if size < 5_000_000 or not options.quick}
    for name in options.tables:
        TABLES[name](sizes)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(FIGURES))


if __name__ == "__main__":
    main()
