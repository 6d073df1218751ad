"""What is logged: one line for a person on a terminal, JSON in a pipe, never a secret, and never a wait."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from moonshim.engine.values.conversation import Usage
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.log_lines import WORDS, fields_of, human_line
from moonshim.gateway.observe.record import RequestRecord
from moonshim.http_server.log_lines import without_secrets
from moonshim.usage.record import UsageRecord
from tests.support.command import ROOT

pty = pytest.importorskip("pty")

LINE = "claude-code → fireworks/kimi-k2p6 200 3.2s 12k/830 tok cache 91% · mended: markers×2 ids×4"


def finished(**changes: Any) -> RequestRecord:
    given: dict[str, Any] = {
        "request_id": "req_1",
        "path": "/v1/messages",
        "dialect": "anthropic",
        "client": "claude-code",
        "requested_model": "claude-opus",
        "provider": "fireworks",
        "model": "kimi-k2p6",
        "streamed": True,
        "status": 200,
        "attempts": 1,
        "first_byte_seconds": 0.8,
        "seconds": 3.2,
        "input_tokens": 12_000,
        "output_tokens": 830,
        "cached_tokens": 10_920,
        "repairs": {"marker_call": 2, "id_invalid": 3, "id_repeated": 1},
    }
    return RequestRecord(**(given | changes))


@contextmanager
def logging_to(stream: IO[str], level: str = "info", worker: int | None = None) -> Iterator[None]:
    """As the process would: and everything as it was afterwards."""
    root = logging.getLogger()
    before, handlers = root.level, list(root.handlers)
    logs.configure(level, stream, worker=worker)
    try:
        yield
    finally:
        logs.close()
        root.handlers[:] = handlers
        root.setLevel(before)


@contextmanager
def in_a_pipe(tmp_path: Path, level: str = "info") -> Iterator[None]:
    with (tmp_path / "log").open("w") as file, logging_to(file, level):
        yield


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


class TestForPeople:
    def test_a_request_is_the_line_that_was_promised(self) -> None:
        ours, theirs = pty.openpty()
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal, logging_to(terminal):
            logs.log_request(finished())
            logs.close()
            shown = os.read(ours, 4096).decode()
        os.close(ours)
        assert "\x1b[32m200\x1b[0m" in shown
        assert re.fullmatch(rf"\d\d:\d\d:\d\d {re.escape(LINE)}\r\n", re.sub(r"\x1b\[\d+m", "", shown))

    def test_there_are_no_colours_for_those_who_want_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        ours, theirs = pty.openpty()
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal, logging_to(terminal):
            logs.log_request(finished())
            logs.close()
            shown = os.read(ours, 4096).decode()
        os.close(ours)
        assert re.fullmatch(rf"\d\d:\d\d:\d\d {re.escape(LINE)}\r\n", shown)

    def test_which_of_several_workers_says_it_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        ours, theirs = pty.openpty()
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal, logging_to(terminal, worker=2):
            logs.log_request(finished())
            logs.close()
            shown = os.read(ours, 4096).decode()
        os.close(ours)
        assert re.fullmatch(rf"\d\d:\d\d:\d\d \[worker 2\] {re.escape(LINE)}\r\n", shown)

    @pytest.mark.parametrize(
        ("changes", "end"),
        [
            ({"repairs": {}}, "cache 91%"),
            ({"repairs": {"a_new_rule": 1}}, "mended: a_new_rule×1"),
            ({"repairs": {"usage_moved": 1, "usage_repeated": 1}}, "cache 91%"),
            ({"repairs": {"usage_moved": 1, "id_missing": 2}}, "cache 91% · mended: ids×2"),
            ({"repairs": {}, "route": "think"}, "route think"),
            ({"repairs": {}, "route": "default"}, "cache 91%"),
            ({"repairs": {}, "cached_tokens": None}, "12k/830 tok"),
            ({"repairs": {}, "outcome": "client_gone", "status": 499}, "cache 91% · client gone"),
            ({"repairs": {}, "attempts": 3}, "cache 91% · 3 attempts"),
            ({"repairs": {}, "store_failures": ["recall", "remember"]}, "store down: recall remember"),
            ({"repairs": {}, "error": "overloaded: engine busy"}, "cache 91% · overloaded: engine busy"),
        ],
    )
    def test_what_was_out_of_the_ordinary_stands_at_the_end(self, changes: dict[str, Any], end: str) -> None:
        assert human_line({"event": "request"} | fields_of(finished(**changes)), colour=False).endswith(end)

    def test_a_request_that_reached_no_host_names_the_model_that_was_asked_for(self) -> None:
        record = finished(
            provider=None,
            model=None,
            requested_model="kimi-k9",
            status=404,
            outcome="refused",
            error="not_found: no such",
        )
        shown = human_line({"event": "request"} | fields_of(record), colour=False)
        assert shown.startswith("claude-code → kimi-k9 404 ")

    def test_a_client_cannot_move_the_cursor(self) -> None:
        fields = {"event": "request"} | fields_of(finished(client="x\x1b[2J\n", provider=None, model="\u202eevil"))
        shown = human_line(fields, colour=False)
        assert shown.isprintable()

    def test_every_rule_of_the_documentation_has_a_word(self) -> None:
        page = (ROOT / "docs" / "reference" / "repairs.md").read_text()
        first_cells = re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)
        rules = {rule for cell in first_cells for rule in re.findall(r"`([a-z0-9_]+)`", cell)}
        assert len(rules) > 40
        assert rules - WORDS.keys() == set()

    def test_a_line_shows_the_cost_if_it_is_known(self) -> None:
        booked = UsageRecord(id="1", request_id="r", started=0, cost=6_093_200_000, currency="$")
        shown = human_line({"event": "request"} | fields_of(finished(booked=booked)), colour=False)
        assert shown == LINE.replace("91%", "91% $0.0061")
        assert shown in (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
        unknown = UsageRecord(id="1", request_id="r", started=0)
        assert human_line({"event": "request"} | fields_of(finished(booked=unknown)), colour=False) == LINE


class TestForPrograms:
    def test_the_page_on_logs_has_every_field_and_no_other(self) -> None:
        page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
        table = page.partition("| field | meaning |")[2].partition("\n\n")[0]
        first_cells = re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)
        listed = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
        given: dict[str, Any] = {"key": "ci", "session": "s", "route": "think", "error": "x", "estimated": True}
        given |= {"prefix_lost": "the model changed", "searches": 1, "blame": "answer", "judged": {"flagged": 1}}
        given |= {"asked_again": "call_missing", "is_ask_again_limited": True, "asked_again_tokens": Usage(9, 1)}
        booked = UsageRecord(id="1", request_id="r", started=0, cost=6_093_200_000, currency="$")
        full = finished(store_failures=["recall"], changes={"x": 1}, streamed=True, booked=booked, **given)
        assert listed - {"time", "level", "event", "worker"} == set(fields_of(full))

    def test_a_request_is_one_line_of_json(self, tmp_path: Path) -> None:
        with in_a_pipe(tmp_path):
            logs.log_request(finished())
        (line,) = lines(tmp_path)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
        assert line == {
            "event": "request",
            "level": "info",
            "request_id": "req_1",
            "client": "claude-code",
            "path": "/v1/messages",
            "dialect": "anthropic",
            "requested_model": "claude-opus",
            "provider": "fireworks",
            "model": "kimi-k2p6",
            "stream": True,
            "status": 200,
            "outcome": "ok",
            "attempts": 1,
            "first_byte_seconds": 0.8,
            "seconds": 3.2,
            "input_tokens": 12_000,
            "output_tokens": 830,
            "cached_tokens": 10_920,
            "repairs": {"marker_call": 2, "id_invalid": 3, "id_repeated": 1},
        }

    def test_how_loud_it_is_follows_from_the_outcome(self, tmp_path: Path) -> None:
        with in_a_pipe(tmp_path, "warning"):
            for outcome in ("ok", "refused", "client_gone", "upstream_error", "broken", "failed"):
                logs.log_request(finished(outcome=outcome))
        assert [(line["outcome"], line["level"]) for line in lines(tmp_path)] == [
            ("upstream_error", "warning"),
            ("broken", "warning"),
            ("failed", "error"),
        ]

    def test_what_libraries_log_comes_out_in_the_same_form(self, tmp_path: Path) -> None:
        with in_a_pipe(tmp_path):
            logging.getLogger("uvicorn.error").info("Started server process")
            logging.getLogger("aiohttp.client").warning("Unclosed %s", "session")
        told = [(line["event"], line["logger"], line["message"]) for line in lines(tmp_path)]
        assert told == [("library", "aiohttp.client", "Unclosed session")]

    def test_what_happens_within_a_request_names_it(self, tmp_path: Path) -> None:
        async def request(number: int) -> None:
            logs.bind_request(finished(request_id=f"req_{number}"))
            await asyncio.sleep(0)
            logs.event("log_request", model="k3")
            await asyncio.create_task(within(number))

        async def within(number: int) -> None:
            logs.event("log_answer", number=number)

        async def main() -> None:
            await asyncio.gather(request(1), request(2))
            logs.event("draining")

        with in_a_pipe(tmp_path):
            asyncio.run(main())
        told = sorted((line["event"], line.get("request_id", "")) for line in lines(tmp_path))
        assert told == [
            ("draining", ""),
            ("log_answer", "req_1"),
            ("log_answer", "req_2"),
            ("log_request", "req_1"),
            ("log_request", "req_2"),
        ]

    def test_a_fault_comes_with_where_it_was(self, tmp_path: Path) -> None:
        with in_a_pipe(tmp_path):
            try:
                json.loads("{}")["nothing"]
            except KeyError as error:
                logs.log_error(finished(), error)
        (line,) = lines(tmp_path)
        assert line["request_id"] == "req_1"
        assert "KeyError: 'nothing'" in line["exception"]

    def test_no_secret_is_written_wherever_it_stands(self, tmp_path: Path) -> None:
        key = "sk-abcdefgh0123456789"
        with in_a_pipe(tmp_path):
            logs.log_request(finished(error=f"401: {key} is wrong", client=key, requested_model=f"Bearer {key}"))
            logs.event("odd", text=f'api_key=abcdefgh12345678"{key}"', nested={"list": [key]})
            logging.getLogger("x").warning("key %s", key)
            try:
                raise ValueError(key)
            except ValueError as error:
                logs.log_error(finished(), error)
        assert len(lines(tmp_path)) == 4
        assert "0123456789" not in (tmp_path / "log").read_text()
        assert "abcdefgh12345678" not in (tmp_path / "log").read_text()


def test_a_key_of_the_gateway_that_was_pasted_as_a_model_is_masked() -> None:
    key = "msk_" + "abcdefgh12345678" * 3
    assert without_secrets(fields_of(finished(requested_model=key)))["requested_model"] == "msk_…"
