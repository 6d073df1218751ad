"""A conversation that is kept in a file, under hosts that drop and refuse, full disks and kills: it always goes on.

How the loop itself takes failures is in test_loop_failing.py, how it is stopped in test_loop_stopping.py, and what a
file survives in test_history_crash.py. Here all of that comes together, in processes of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from moonshim.agent import Agent, HistoryFile, read_history
from moonshim.agent.history import History
from moonshim.engine.values.conversation import Message
from moonshim.simulator import Simulator
from tests.agent.asking import run
from tests.agent.scripts import Script, called, check_can_go_on, ending, results_in, said, steps_of
from tests.agent.talking_process import TOOLS, provider_for

SAYS: Final = (
    called(("look", '{"path": "a"}')),
    called(("look", '{"path": "b"}'), ("look", '{"path": "c"}'), text="And these."),
    called(("look", '{"path": "d"}')),
    called(("look", '{"path": "e"}')),
    said("All five."),
)
SEEN: Final = [f"seen {name}" for name in "abcde"]
PROCESS: Final = [sys.executable, "-m", "tests.agent.talking_process"]


@pytest.fixture(scope="module")
def standing() -> Iterator[Simulator]:
    with Simulator(behaviour="moonshot", model=Script(SAYS), log=lambda seen: None).running() as server:
        yield server


@pytest.fixture
def server(standing: Simulator) -> Simulator:
    standing.requests.clear()
    return standing


@pytest.mark.parametrize("fault", ["cut-off", "truncated", "context-overflow"])
def test_the_host_fails_in_each_of_five_rounds_and_each_time_somebody_else_goes_on(
    server: Simulator, tmp_path: Path, fault: str
) -> None:
    path = tmp_path / "talk.jsonl"

    async def test() -> None:
        faults = "".join(f"+{fault}@{number}*1" for number in range(1, 6))
        for number in range(6):
            # Nothing is left of the agent before but its file.
            with HistoryFile.open(path) if path.exists() else HistoryFile.create(path) as history:
                before = history.messages
                async with provider_for(server.url).with_(model=f"kimi-k2.5{faults}") as provider:
                    agent = Agent(provider, TOOLS, history=history)
                    last = ending(await steps_of(agent.retry_stream() if before else agent.run_stream("Look")))
                assert last.reason == ("failed" if number < 5 else "answered"), last.detail
                assert last.detail or number == 5
                assert history.messages[: len(before)] == before
                check_can_go_on(history)
        found = History(read_history(path).messages)
        assert results_in(found) == SEEN
        assert [seen.problem for seen in server.refusals if not seen.faults] == []
        assert len(server.requests) == 10

    run(test())


STEPS: Final = [
    ("RoundStarted", 1),
    ("BlockDelta", 1),
    ("ToolStarted", 1),
    ("ToolStarted", 3),
    ("ToolEnded", 2),
    ("MessageSaved", 3),
    ("RoundStarted", 4),
    ("Finished", 5),
]


@pytest.mark.parametrize(("kind", "count"), STEPS)
def test_a_process_that_is_killed_at_a_step_is_gone_on_for(
    server: Simulator, tmp_path: Path, kind: str, count: int
) -> None:
    path = tmp_path / "talk.jsonl"
    with subprocess.Popen(
        [*PROCESS, server.url, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        kept, left = 0, count
        for line in process.stdout:
            kept += line.strip() == "MessageSaved"
            left -= line.strip() == kind
            if not left:
                process.kill()
                break
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == -9

    async def test() -> None:
        with HistoryFile.open(path) as history:
            before = history.messages
            assert kept <= len(before) <= kept + 1
            async with provider_for(server.url) as provider:
                agent = Agent(provider, TOOLS, history=history)
                assert ending(await steps_of(agent.run_stream("Go on"))).reason == "answered"
            assert history.messages[: len(before)] == before
            check_can_go_on(history)
            # Only calls that were running have no result, and the model reads why.
            lost = [one for one in results_in(history) if one not in SEEN]
            assert all("Error: no result." in one for one in lost)
            assert len(results_in(history)) == len(SEEN)
            assert server.refusals == []

    run(test())


@pytest.mark.parametrize("room", [300, 700, 1200, 2000])
def test_a_disk_that_is_full_is_told_and_the_conversation_goes_on_and_is_written_later(
    server: Simulator, tmp_path: Path, room: int
) -> None:
    path = tmp_path / "talk.jsonl"
    ran = subprocess.run([*PROCESS, server.url, str(path), str(room)], capture_output=True, text=True, check=True)
    told, first, second = ran.stdout.splitlines()
    assert told.startswith(f"not kept: cannot write {path}: File too large; the conversation continues in memory")
    assert first == "answered, kept: False, 11 messages"
    assert second == "answered, kept: True, 13 messages"
    found = read_history(path)
    assert found.troubles == ()
    assert _roles(found.messages) == ROLES
    assert results_in(History(found.messages)) == SEEN
    check_can_go_on(History(found.messages))
    assert server.refusals == []


ROLES = "user assistant tool assistant tool tool assistant tool assistant tool assistant user assistant"


def _roles(messages: tuple[Message, ...]) -> str:
    return " ".join(message.role for message in messages)
