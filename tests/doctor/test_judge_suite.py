"""`moonshim doctor --judge`: 200 calls that are never run, and a report on the judge that no one has to believe."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.doctor.judge import SuiteCall, suite
from moonshim.engine.judge import decide_without_model
from moonshim.engine.values.verdicts import CallToJudge
from moonshim.simulator import IntendedResponse, SimRequest, Simulator
from tests.support.command import CompletedCommand, run_moonshim

KIND_OF: Final = {(call.user, call.arguments): call for call in suite()}


class Judge:
    """Answers as it is told, for the call of the suite that it is asked about."""

    def __init__(self, outcome: Callable[[SuiteCall], str]) -> None:
        self._outcome = outcome

    def reply(self, request: SimRequest) -> IntendedResponse:
        data = json.loads(request.words.splitlines()[1])
        (call,) = data["calls"]
        known = KIND_OF[data["user"][0], call["arguments"]]
        assert [one["tool"] for one in data["earlier_calls"]] == [one.tool for one in known.earlier]
        entry = {"id": call["id"], "reason": f"It is {known.kind}.", "outcome": self._outcome(known)}
        return IntendedResponse(text=json.dumps({"verdicts": [entry]}))


def doctor(folder: Path, outcome: Callable[[SuiteCall], str], *arguments: str, **table: Any) -> CompletedCommand:
    server = Simulator(behaviour="selfhost", model=Judge(outcome))
    with server.running():
        provider = {"name": "lab", "api_base_url": f"{server.url}/v1", "models": ["kimi-k2.6"]}
        file = folder / "moonshim.json"
        file.write_text(json.dumps({"providers": [provider], **table}))
        return run_moonshim("doctor", "--config", file, "--judge", *arguments)


def test_the_suite_has_calls_of_all_kinds_and_of_several_shells() -> None:
    calls = suite()
    assert Counter(call.kind for call in calls) == {
        "harmless": 80,
        "destructive": 40,
        "exfiltrating": 40,
        "injected": 40,
    }
    assert len({(call.user, call.arguments, call.earlier) for call in calls}) == 200
    assert {call.shell for call in calls} == {"bash", "zsh", "fish", "powershell", "cmd"}
    for call in calls:
        assert json.loads(call.arguments)
        assert decide_without_model(CallToJudge(0, call.tool, call.arguments)) is None


def test_a_judge_that_is_right_about_everything(tmp_path: Path) -> None:
    right = doctor(tmp_path, lambda call: "not_flagged" if call.kind == "harmless" else "flagged", "kimi-k2.6")
    lines = right.out.decode().splitlines()
    assert (right.code, right.stderr) == (0, "")
    assert lines[0] == "kimi-k2.6, 200 calls"
    assert [line.split() for line in lines[2:6]] == [
        ["harmless", "80", "0", "80", "0"],
        ["destructive", "40", "40", "0", "0"],
        ["exfiltrating", "40", "40", "0", "0"],
        ["injected", "40", "40", "0", "0"],
    ]
    assert len(lines) == 7


def test_a_judge_that_passes_everything_fails(tmp_path: Path) -> None:
    done = doctor(tmp_path, lambda call: "not_flagged", claude_code={"judge_model": "lab/kimi-k2.6"})
    assert done.code == 1
    assert "May run, and should not: 120" in done.out.decode()
    assert "Harmless, and flagged" not in done.out.decode()


def test_a_judge_that_flags_everything_is_safe_and_of_no_use(tmp_path: Path) -> None:
    done = doctor(tmp_path, lambda call: "flagged", claude_code={"judge_model": "lab/kimi-k2.6"})
    assert done.code == 0
    assert "Harmless, and flagged: 80" in done.out.decode()


def test_answers_that_are_not_in_form_are_no_verdicts(tmp_path: Path) -> None:
    done = doctor(tmp_path, lambda call: "allowed", "--json", claude_code={"judge_model": "lab/kimi-k2.6"})
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, len(rows)) == (1, 200)
    assert {(row["outcome"], row["right"]) for row in rows} == {("flagged", False)}
    assert {row["problem"] for row in rows} == {"the answer is not one verdict for each call"}


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_without_a_judge_it_says_how_to_name_one(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = doctor(tmp_path, lambda call: "flagged", *arguments)
    assert (done.code, done.out) == (2, b"")
    assert "no judge is configured" in done.stderr
    assert "judge_model = " in done.stderr


def test_a_judge_that_no_provider_has_is_asked_nothing(tmp_path: Path) -> None:
    done = doctor(tmp_path, lambda call: "flagged", "lab/kimi-k2.5")
    assert (done.code, done.out) == (2, b"")
    assert "--judge: no provider has the model 'lab/kimi-k2.5' (did you mean 'lab/kimi-k2.6'?)" in done.stderr
