"""`moonshim serve` as a user runs it: what it refuses and why, the line when it is ready, and its signals."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from moonshim.cli import main
from moonshim.cli.serve import parser
from moonshim.config import LOOKED_FOR
from moonshim.gateway.process.run_file import running_gateways
from tests.support.command import MOONSHIM, ROOT, CompletedCommand, environment, run_moonshim
from tests.support.gateway.serving import wait_until
from tests.support.servers import DEADLINE, Running
from tests.support.servers import running as running_command

CONFIG: Final = """\
[[providers]]
name = "{name}"
api_base_url = "http://127.0.0.1:9/v1"
models = ["kimi-k2.5"]
"""


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*LOOKED_FOR, "MOONSHIM_CONFIG", "MOONSHIM_STORE", "MOONSHIM_SECRET", "MOONSHIM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def serve(*arguments: str | Path, cwd: Path, **changes: str) -> CompletedCommand:
    """Run it to its end, when it cannot be served."""
    return run_moonshim("serve", *arguments, stdin=b"", cwd=cwd, **changes)


@contextmanager
def running(*arguments: str | Path, cwd: Path, **changes: str) -> Iterator[Running]:
    with running_command("serve", *arguments, cwd=cwd, **changes) as gateway:
        yield gateway


class TestWhatIsRefused:
    def test_nothing_configured_names_what_was_looked_for_and_the_demo(self, tmp_path: Path) -> None:
        done = serve(cwd=tmp_path)
        assert done.code == 2
        assert "edit the file, then run `moonshim trust`" in done.stderr
        for word in (*LOOKED_FOR, "--config", "MOONSHIM_CONFIG", "moonshim.toml", "--demo", "moonshim config example"):
            assert word in done.stderr
        assert str(tmp_path / "home" / ".config" / "moonshim") in done.stderr
        assert done.out == b""

    @pytest.mark.parametrize(
        "command", ["serve", "doctor", "chat -p hello", "config check", "serve --config empty.toml"]
    )
    def test_a_key_that_is_not_used_by_itself_is_named_with_what_uses_it(self, command: str, tmp_path: Path) -> None:
        (tmp_path / "empty.toml").write_text("[gateway]\n")
        keys = {"DASHSCOPE_API_KEY": "sk-dash", "OPENCODE_API_KEY": "sk-open"}
        done = run_moonshim(*command.split(), stdin=b"", cwd=tmp_path, **keys)
        assert done.code != 0
        unused = "is set, but not used without a file: run `moonshim init --host"
        assert f"DASHSCOPE_API_KEY {unused} alibaba`" in done.stderr
        assert f"OPENCODE_API_KEY {unused} opencode-go` or `moonshim init --host opencode-zen`" in done.stderr
        assert "sk-" not in done.stderr

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        done = serve("--config", "none.toml", cwd=tmp_path)
        assert done.code == 2
        assert "none.toml: no such file" in done.stderr

    def test_a_broken_file_is_told_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "moonshim.toml").write_text(CONFIG.format(name="a") + "modles = []\n")
        done = serve("--config", "moonshim.toml", cwd=tmp_path)
        assert done.code == 2
        assert "moonshim.toml:5" in done.stderr
        assert "models" in done.stderr

    def test_an_address_that_others_reach_asks_for_keys(self, tmp_path: Path) -> None:
        done = serve("--host", "0.0.0.0", MOONSHOT_API_KEY="sk-test-key-12345", cwd=tmp_path)
        assert done.code == 2
        assert "moonshim keys new" in done.stderr
        assert "open_without_keys" in done.stderr

    def test_several_workers_ask_for_a_store_that_they_can_share(self, tmp_path: Path) -> None:
        done = serve("--workers", "2", "--demo", cwd=tmp_path)
        assert done.code == 2
        assert "sqlite:" in done.stderr
        assert "redis://" in done.stderr

    def test_a_port_in_use_is_a_plain_line(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for more in ([], ["--workers", "2"]):
                done = serve(
                    "--demo", "--port", str(port), *more, cwd=tmp_path, MOONSHIM_STORE=f"sqlite:{tmp_path}/state"
                )
                assert done.code == 1
                (line,) = done.lines
                assert line.startswith(f"moonshim serve: port {port} on 127.0.0.1 is in use")
                assert "--port 0" in line

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--port", "70000"],
            ["--port", "x"],
            ["--workers", "0"],
            ["--workers", "1000"],
            ["--log-level", "loud"],
            ["--graceful-seconds", "-1"],
            ["--graceful-seconds", "nan"],
            ["--demo", "--config", "x.toml"],
            ["--host", "no-such-host.invalid", "--demo"],
            ["--log-dir", "/dev/null/logs", "--demo"],
            ["surprise"],
        ],
    )
    def test_what_makes_no_sense_is_told(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["serve", *arguments]) == 2
        assert capsys.readouterr().err.startswith("moonshim serve: ")

    @pytest.mark.parametrize(
        ("option", "value", "told"),
        [
            ("--port", "abc", "expected an integer from 0 to 65535, got 'abc'"),
            ("--port", "70000", "expected an integer from 0 to 65535, got '70000'"),
            ("--workers", "0", "expected an integer from 1 to 256, got '0'"),
            ("--graceful-seconds", "soon", "expected a number from 0 to 86400, got 'soon'"),
        ],
    )
    def test_a_number_that_cannot_be_says_which_can(
        self, option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["serve", option, value]) == 2
        said = capsys.readouterr().err
        assert (option in said, told in said) == (True, True), said

    def test_what_is_missing_of_the_packages_is_named_with_the_command(self, tmp_path: Path) -> None:
        program = (
            "import sys\nsys.modules['starlette'] = None\n"
            "from moonshim.cli import main\nsys.exit(main(['serve', '--demo']))"
        )
        run = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            cwd=tmp_path,
            env=environment(),
            timeout=60,
            check=False,
        )
        assert run.returncode == 2
        assert b"starlette" in run.stderr
        assert b'pip install ".[gateway]"' in run.stderr

    def test_a_store_that_cannot_be_opened_is_a_plain_line(self, tmp_path: Path) -> None:
        done = serve("--demo", "--port", "0", cwd=tmp_path, MOONSHIM_STORE="sqlite:/dev/null/state")
        assert done.code == 2
        assert done.lines[-1] == "moonshim serve: store /dev/null/state: /dev/null is not a folder"
        done = serve("--demo", "--port", "0", cwd=tmp_path, MOONSHIM_STORE="sqlite:some/typo/state.db")
        assert (done.code, "some/typo/state.db: no such folder: some" in done.lines[-1]) == (2, True)


class TestServing:
    def test_the_demo_says_what_it_is_answers_and_ends_well(self, tmp_path: Path) -> None:
        with running("--demo", cwd=tmp_path) as gateway:
            assert gateway.line.startswith("moonshim 0.")
            assert "no model" in gateway.line
            assert "models: /v1/models" in gateway.line
            assert gateway.get("/health")[0] == 200
            assert gateway.get("/ready")[0] == 200
            tool = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
            asked = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
            status, answer = gateway.post("/v1/chat/completions", asked)
            assert status == 200
            choice = json.loads(answer)["choices"][0]
            assert choice["message"]["tool_calls"][0]["function"] == {"name": "get_time", "arguments": "{}"}
            assert choice["finish_reason"] == "tool_calls"
            status, streamed = gateway.post("/v1/chat/completions", asked | {"stream": True})
            assert status == 200
            assert "tool_call_begin" not in streamed
            if sys.platform == "linux":
                status_file = Path(f"/proc/{gateway.process.pid}/status").read_text()
                resident = next(line for line in status_file.splitlines() if line.startswith("VmRSS"))
                assert int(resident.split()[1]) < 80 * 1024, resident
            assert gateway.stop() == 0
            requests = [line for line in gateway.logged if line["event"] == "request"]
            assert [line["status"] for line in requests] == [200, 200]
            assert requests[0]["repairs"]["marker_call"] == 1
            assert gateway.process.stdout is not None
            assert gateway.process.stdout.read() == b"", "one line on standard output, and no more"

    def test_a_stream_is_logged_and_mend_replays_it(self, tmp_path: Path) -> None:
        with running("--demo", "--log-dir", "logs", cwd=tmp_path) as gateway:
            tool = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
            asked = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
            assert gateway.post("/v1/chat/completions", asked | {"stream": True})[0] == 200
            assert gateway.stop() == 0
        (log,) = (tmp_path / "logs").iterdir()
        assert log.stat().st_mode & 0o777 == 0o600
        done = run_moonshim("mend", log)
        assert done.code == 0
        assert b'"name":"get_time"' in done.out.replace(b" ", b"")

    def test_two_workers_serve_on_one_port(self, tmp_path: Path) -> None:
        store = f"sqlite:{tmp_path}/state.db"
        with running("--demo", "--workers", "2", cwd=tmp_path, MOONSHIM_STORE=store) as gateway:
            assert "2 workers" in gateway.line
            asked = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]}
            for _ in range(12):
                assert gateway.post("/v1/chat/completions", asked)[0] == 200

            def counted() -> float:
                lines = [line for line in gateway.get("/metrics")[1].splitlines() if 'status="200"' in line]
                return sum(float(line.split()[-1]) for line in lines)

            wait_until(lambda: counted() == 12, "requests are counted after their responses are sent")
            assert gateway.stop() == 0
            workers = {line["worker"] for line in gateway.logged if line["event"] == "request"}
            assert workers <= {1, 2}

    def test_a_change_of_the_file_is_used_and_a_broken_one_is_not(self, tmp_path: Path) -> None:
        path = tmp_path / "moonshim.toml"
        path.write_text(CONFIG.format(name="first"))
        with running("--config", path, cwd=tmp_path) as gateway:
            assert "providers: first" in gateway.line
            path.write_text("no [toml")
            wait_until(lambda: "configuration_rejected" in gateway.stderr, "the broken file is told")
            assert "first" in gateway.get("/ready")[1]
            path.write_text(CONFIG.format(name="second"))
            wait_until(lambda: "second" in gateway.get("/ready")[1], "the new file is used")
            wait_until(lambda: "configuration_loaded" in gateway.stderr, "it is told")
            gateway.process.send_signal(signal.SIGHUP)
            wait_until(lambda: gateway.stderr.count("configuration_loaded") == 2, "SIGHUP loads it once more")
            assert gateway.stop() == 0

    def test_keys_in_the_environment_are_enough_and_are_never_shown(self, tmp_path: Path) -> None:
        key = "sk-secret-0123456789"
        with running("--log-level", "debug", cwd=tmp_path, MOONSHOT_API_KEY=key, OPENROUTER_API_KEY=key) as gateway:
            assert "providers: moonshot, openrouter" in gateway.line
            assert gateway.stop(signal.SIGINT) == 0
            assert "0123456789" not in gateway.stderr + gateway.line


class TestOnATerminal:
    def test_ctrl_c_ends_it_without_a_traceback(self, tmp_path: Path) -> None:
        pty = pytest.importorskip("pty")
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*MOONSHIM, "serve", "--port", "0", "--demo"],
            cwd=tmp_path,
            env=environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown = b""
        while b"/v1/models" not in shown:
            assert select.select([ours], [], [], DEADLINE)[0], shown
            shown += os.read(ours, 4096)
        os.killpg(process.pid, signal.SIGINT)  # what the terminal does at Ctrl-C
        assert process.wait(DEADLINE) == 0
        with suppress(OSError):  # EIO: the other side is closed
            shown += os.read(ours, 65536)
        os.close(ours)
        assert b"Traceback" not in shown
        assert b"\x1b[1mhttp://127.0.0.1:" in shown


def test_the_page_for_operators_names_every_option() -> None:
    page = (ROOT / "docs" / "operations" / "operating.md").read_text()
    table = page.partition("| option |")[2].partition("\n\n")[0]
    actions = [action for action in parser()._actions if action.help != argparse.SUPPRESS]
    options = {option for action in actions for option in action.option_strings if len(option) > 2}
    assert set(re.findall(r"^\| `(--[a-z-]+)", table, re.MULTILINE)) == options - {"--help"}


def test_the_page_on_logs_names_every_event() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    folders = [ROOT / "src" / "moonshim" / name for name in ("gateway", "http_server", "transformers")]
    source = "".join(path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))
    events = set(re.findall(r"(?:event|_sink|_log\.error)\((?:self\._level, )?\s*\"(\w+)\"", source))
    listed = page.partition("## Other events\n")[2]
    assert len(events) > 15
    assert events <= set(re.findall(r"`(\w+)`", listed))


def test_a_gateway_is_announced_once_its_port_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal during the start ends the process at once, and would leave the file behind."""
    folder = tmp_path / "run" / "moonshim"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    seen: list[int] = []

    def run(_: object, sockets: list[socket.socket], *, ready: Callable[[], None], **__: object) -> int:
        for bound in sockets:
            bound.close()
        seen.append(len(list(folder.glob("*"))))
        ready()
        seen.append(len(list(folder.glob("*"))))
        return 0

    monkeypatch.setattr("moonshim.http_server.server.run", run)
    assert main(["serve", "--demo", "--port", "0"]) == 0
    assert seen == [0, 1]
    assert list(folder.glob("*")) == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"), ("::", "http://[::1]:")],
)
def test_the_announced_address_is_one_that_clients_can_connect_to(
    host: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All systems can listen on every address, but not all can connect to `0.0.0.0`."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("MOONSHIM_LOCAL_KEY", "msk_" + "a" * 40)
    urls: list[str] = []

    def run(_: object, sockets: list[socket.socket], *, ready: Callable[[], None], **__: object) -> int:
        for bound in sockets:
            bound.close()
        ready()
        urls.extend(gateway.url for gateway in running_gateways(os.environ))
        return 0

    monkeypatch.setattr("moonshim.http_server.server.run", run)
    assert main(["serve", "--demo", "--port", "0", "--host", host]) == 0
    assert [url.rpartition(":")[0] + ":" for url in urls] == [expected]
