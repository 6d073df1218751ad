"""What is counted, for one process and for several."""

from __future__ import annotations

import json
import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from moonshim.gateway.observe import logs
from moonshim.gateway.observe.metrics import Metrics
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.process.settings import ServeSettings
from tests.support.command import ROOT
from tests.support.gateway.serving import Serving, serving, wait_until


def finished(**changes: Any) -> RequestRecord:
    given: dict[str, Any] = {
        "request_id": "req_1",
        "path": "/v1/messages",
        "dialect": "anthropic",
        "provider": "fireworks",
        "model": "accounts/fireworks/models/kimi-k2p6",
        "status": 200,
        "first_byte_seconds": 0.8,
        "seconds": 3.2,
        "input_tokens": 12_000,
        "output_tokens": 830,
        "cached_tokens": 10_920,
        "repairs": {"marker_call": 2},
        "changes": {"history_id": 3},
        "store_failures": ["recall"],
    }
    return RequestRecord(**(given | changes))


def samples(text: str) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def told(metrics: Metrics) -> dict[str, float]:
    return samples(metrics.render().decode())


@pytest.mark.parametrize("absurd", [-5, 10**400])
def test_numbers_that_cannot_be_are_left_out_and_the_rest_is_counted(absurd: int) -> None:
    metrics = Metrics()
    record = finished(input_tokens=absurd, output_tokens=absurd, cached_tokens=absurd, seconds=-1.0)
    record.first_byte_seconds = math.nan
    metrics.count_started(record)
    metrics.observe(record)
    found = told(metrics)
    assert found["moonshim_requests_open"] == 0
    assert not [name for name in found if name.startswith("moonshim_tokens_total")]
    assert found['moonshim_request_seconds_sum{dialect="anthropic",provider="fireworks"}'] == 0
    assert found['moonshim_repairs_total{rule="marker_call"}'] == 2


def test_what_cannot_be_counted_is_told_once_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[str] = []
    monkeypatch.setattr(logs, "log_error", lambda record, error: faults.append(record.request_id))
    metrics = Metrics()
    for _ in range(2):
        metrics.count_started(finished())
        metrics.observe(finished(repairs={"marker_call": -1}))
    assert faults == ["req_1"]
    assert told(metrics)["moonshim_requests_open"] == 0


def test_a_request_is_counted_under_all_that_is_known_of_it() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.count_started(finished())
        metrics.observe(finished())
    found = told(metrics)
    labels = 'dialect="anthropic",model="kimi-k2",outcome="ok",provider="fireworks",status="200"'
    assert found[f"moonshim_requests_total{{{labels}}}"] == 2
    assert found['moonshim_request_seconds_sum{dialect="anthropic",provider="fireworks"}'] == 6.4
    assert found['moonshim_first_byte_seconds_count{dialect="anthropic",provider="fireworks"}'] == 2
    assert found['moonshim_tokens_total{direction="cached",model="kimi-k2",provider="fireworks"}'] == 21_840
    assert found['moonshim_repairs_total{rule="marker_call"}'] == 4
    assert found['moonshim_changes_total{rule="history_id"}'] == 6
    assert found['moonshim_store_failures_total{operation="recall"}'] == 2
    assert found["moonshim_requests_open"] == 0


def test_what_is_no_request_is_counted_too() -> None:
    metrics = Metrics()
    metrics.count_started(finished())
    metrics.count_retry("groq")
    metrics.set_breaker("groq", is_open=True)
    metrics.set_breaker("moonshot", is_open=True)
    metrics.set_breaker("moonshot", is_open=False)
    metrics.count_reload(True)
    metrics.count_reload(False)
    found = told(metrics)
    assert found["moonshim_requests_open"] == 1
    assert found['moonshim_retries_total{provider="groq"}'] == 1
    assert found['moonshim_breaker_open{provider="groq"}'] == 1
    assert found['moonshim_breaker_open{provider="moonshot"}'] == 0
    assert found['moonshim_reloads_total{result="loaded"}'] == 1
    assert found['moonshim_reloads_total{result="rejected"}'] == 1
    assert found["process_resident_memory_bytes"] > 0


def test_clients_cannot_make_up_labels() -> None:
    metrics = Metrics()
    metrics.observe(finished())
    before = len(told(metrics))
    for number in range(100):
        metrics.observe(
            finished(provider=None, model=None, requested_model=f"model-{number}", client=f"client-{number}")
        )
        metrics.observe(finished(model=f"made-up-{number}"))
    names = told(metrics)
    assert len([name for name in names if name.startswith("moonshim_requests_total")]) == 3
    assert len(names) < before * 3
    assert "made-up" not in metrics.render().decode()


def test_probes_are_no_requests() -> None:
    metrics = Metrics()
    for path in ("/health", "/ready", "/metrics"):
        metrics.count_started(finished(path=path))
        assert told(metrics)["moonshim_requests_open"] == 0, "who asks for the numbers is not one of them"
        metrics.observe(finished(path=path))
    assert not [name for name in told(metrics) if name.startswith("moonshim_requests_total")]
    assert told(metrics)["moonshim_requests_open"] == 0


def test_two_workers_answer_for_both_also_when_one_has_died(tmp_path: Path) -> None:
    settings = ServeSettings(
        factory="tests.support.gateway.small_service:open_counting_service", port=0, workers=2, log_dir=str(tmp_path)
    )
    with serving(settings, tmp_path) as server:
        counted = wait_until(lambda: _count_at_both(server), "both have counted")
        for _ in range(10):  # whichever is asked
            assert samples(server.get("/metrics")[1])['moonshim_retries_total{provider="host"}'] == sum(
                counted.values()
            )
        open_before = samples(server.get("/metrics")[1])["moonshim_requests_open"]
        assert open_before == sum(counted.values())
        victim = min(counted)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: _open(server) == open_before - counted[victim], "what it had open is open no longer")
        assert samples(server.get("/metrics")[1])['moonshim_retries_total{provider="host"}'] == sum(counted.values())


def _open(server: Serving) -> float:
    try:
        return samples(server.get("/metrics")[1])["moonshim_requests_open"]
    except OSError:  # it was in the queue of the one that died
        return -1.0


def _count_at_both(server: Serving) -> dict[int, int]:
    """How often each has counted, when both have."""
    counted: dict[int, int] = {}
    for _ in range(30):
        answer = json.loads(server.get("/count")[1])
        counted[answer["pid"]] = answer["count"]
    return counted if len(counted) == 2 else {}


def test_the_page_on_metrics_has_every_metric_with_its_labels_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    known = set(re.findall(r"^# HELP (moonshim_\w+)", Metrics().render().decode(), re.MULTILINE))
    table = page.partition("| metric |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(moonshim_\w+)`", table)) == known
    assert set(re.findall(r"`(moonshim_\w+)", page)) <= known
    collectors: list[Any] = list(Metrics()._registry._collector_to_names)
    labels = {one.describe()[0].name: one._labelnames for one in collectors if hasattr(one, "_labelnames")}
    for name, cell in re.findall(r"^\| `(moonshim_\w+)` \| \w+ \| ([^|]*) \|", table, re.MULTILINE):
        assert tuple(re.findall(r"`(\w+)`", cell)) == labels[name.removesuffix("_total")], name
