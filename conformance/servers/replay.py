"""A file of failures that `make test-servers` wrote -> the verdicts of the engine as it is now, without a server.

python -m conformance.servers.replay FILE                 a table: recorded and current verdicts
python -m conformance.servers.replay FILE --show "id:"    also the streams of these deviations
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

import moonshim
from conformance.servers.measure import Failure
from conformance.servers.vllm import MODELS
from tests.support.model_outputs import Received, Verdict, received_from, verdict
from tests.support.streams import chunk, sse

_PROMPT_TOKENS: Final = 9


def replay(failure: Failure) -> Received:
    """What a client gets if the engine mends what the server sent."""
    output = failure.output
    model = MODELS[output.generation]
    body = {
        "model": model,
        "stream": True,
        "messages": [{"role": "user", "content": "go"}],
        "tools": [tool.definition() for tool in output.tools],
    }
    plan = moonshim.prepare_request(body, host=failure.host, model=model).plan
    mender = moonshim.Mender(plan=plan)
    return received_from(mender.feed(_stream(failure, model)) + mender.flush())


def _stream(failure: Failure, model: str) -> bytes:
    chunks: list[dict[str, Any]] = []
    for delta in failure.deltas:
        if not isinstance(delta, dict):
            return sse([*chunks, {"error": {"message": delta[1], "type": "InternalServerError", "code": 500}}])
        chunks.append(chunk(delta, model=model))
    if failure.finish is not None:
        chunks.append(chunk({}, failure.finish, model=model))
    if (tokens := failure.tokens) is not None:
        total = _PROMPT_TOKENS + tokens
        usage = {"prompt_tokens": _PROMPT_TOKENS, "completion_tokens": tokens, "total_tokens": total}
        chunks.append({**chunk({}, model=model), "choices": [], "usage": usage})
    return sse(chunks)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m conformance.servers.replay", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--show", metavar="TEXT", help="show the streams of deviations whose name contains TEXT")
    given = parser.parse_args(arguments)
    failures = msgspec.json.Decoder(Failure).decode_lines(given.file.read_bytes())
    changes: Counter[tuple[Verdict, Verdict]] = Counter()
    for failure in failures:
        received = replay(failure)
        now = verdict(failure.output, received)
        changes[failure.verdict, now] += 1
        print(f"{failure.parser:16} {failure.fault:48} {failure.verdict:6} -> {now}")
        if given.show is not None and given.show in failure.fault:
            _show(failure, received)
    print()
    for (before, now), count in sorted(changes.items()):
        print(f"{count:4} {before} -> {now}")
    return 0


def _show(failure: Failure, received: Received) -> None:
    for title, value in (
        ("model wrote", failure.model_output),
        ("meant", failure.calls),
        ("server sent", failure.deltas),
        ("finish", failure.finish),
        ("client gets", msgspec.to_builtins(received)),
    ):
        print(f"    {title:12} {json.dumps(value, ensure_ascii=False)}")
    print()


if __name__ == "__main__":
    raise SystemExit(main())
