"""`moonshim launch`, with a small program in place of a client: real processes, signals, sockets and a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.gateway.process.run_file import running_gateways
from moonshim.simulator import Simulator
from tests.support.command import MOONSHIM, environment
from tests.support.gateway.serving import wait_until

pexpect = pytest.importorskip("pexpect")

DEADLINE: Final = 120.0
CLIENT: Final = '''\
#!{python}
"""Stands for Claude Code: says what it was given, sends one request, and does what its arguments say."""
import json, os, signal, sys, time, urllib.request

settings = json.load(open(sys.argv[sys.argv.index("--settings") + 1]))
env = {{**os.environ, **settings["env"]}}
body = {{"model": env["ANTHROPIC_MODEL"], "max_tokens": 100, "messages": [{{"role": "user", "content": "hi"}}]}}
if "--auto" in sys.argv:
    body["safeguards"] = [{{"type": "dangerous_tool_use", "classifier_context": {{"v": 1}}}}]
judged = None
request = urllib.request.Request(
    env["ANTHROPIC_BASE_URL"] + "/v1/messages",
    json.dumps(body).encode(),
    {{"authorization": "Bearer " + env["ANTHROPIC_AUTH_TOKEN"], "content-type": "application/json",
     "user-agent": "claude-cli/2.1.325 (external, cli)"}},
)
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(request, timeout=60) as answer:
        given = json.load(answer)
        kind, judged = given["type"], given.get("safeguard_results")
except urllib.error.HTTPError as error:
    kind = error.code
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
signal.signal(signal.SIGWINCH, lambda *_: print("size", *os.get_terminal_size(), flush=True))
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
arguments = sys.argv[sys.argv.index("--settings") + 2:]
print(json.dumps({{"pid": os.getpid(), "url": env["ANTHROPIC_BASE_URL"], "key": env["ANTHROPIC_AUTH_TOKEN"],
    "answer": kind, "judged": judged, "mode": env.get("CLAUDE_CODE_AUTO_MODE_SERVER"),
    "api_key": os.environ.get("ANTHROPIC_API_KEY"), "settings": sys.argv[sys.argv.index("--settings") + 1],
    "model": env["ANTHROPIC_MODEL"], "arguments": arguments}}), flush=True)
if "--exit" in arguments:
    sys.exit(int(arguments[arguments.index("--exit") + 1]))
if "--kill" in arguments:
    os.kill(os.getpid(), signal.SIGKILL)
while "--wait" in arguments:
    signal.pause()
'''


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with a client on its PATH."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(CLIENT.format(python=sys.executable))
    program.chmod(0o755)
    return tmp_path


def env_of(home: Path, **changes: str) -> dict[str, str]:
    odd = ("API_KEY", "XDG_", "MOONSHIM_", "ANTHROPIC_")
    env = {name: value for name, value in environment().items() if not any(part in name for part in odd)}
    return env | {"HOME": str(home), "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"} | changes


def launched(home: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [*MOONSHIM, "launch", *arguments]
    run = subprocess.run(
        command, env=env_of(home, **changes), cwd=home, capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert "Traceback" not in run.stderr, run.stderr
    return run


def run_folder(home: Path) -> Path:
    return home / ".local" / "state" / "moonshim" / "run"


def left_over(home: Path) -> list[str]:
    return sorted(path.name for path in run_folder(home).glob("*"))


def gateway_ended(url: str) -> bool:
    import socket

    host, _, port = url.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return True
    return False


def test_a_client_runs_on_a_gateway_of_its_own_and_nothing_is_left(home: Path) -> None:
    run = launched(home, "claude", "--demo", "--", "--exit", "3", "two words", ANTHROPIC_API_KEY="sk-ant-mine")
    assert run.returncode == 3, run.stderr
    said = json.loads(run.stdout)
    assert said["answer"] == "message"
    assert said["key"].startswith("msk_")
    assert said["api_key"] is None
    assert said["arguments"] == ["--exit", "3", "two words"]
    assert not Path(said["settings"]).exists()
    assert left_over(home) == []
    assert gateway_ended(said["url"])
    assert sorted(path.name for path in home.iterdir()) == [".local", "bin"]


@pytest.mark.parametrize("model", [(), ("kimi-k2.6",)], ids=["the default", "named"])
def test_claude_code_gets_a_judge(home: Path, model: tuple[str, ...]) -> None:
    given = ("claude", "--demo", "--judge", *model, "--", "--exit", "0", "--auto")
    run = launched(home, *given, CLAUDE_CODE_AUTO_MODE_SERVER="0")
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert said["judged"] == [{"type": "dangerous_tool_use", "status": {"type": "available", "tool_uses": {}}}]
    assert not said["mode"], "the client would check by itself"


@pytest.mark.parametrize(
    ("options", "named"),
    [(("--judge", "llama-9"), "--judge"), (("--judge", "--model", "llama-9"), "--model")],
    ids=["its own", "the model of the client"],
)
def test_a_judge_that_no_provider_has_is_an_error_that_names_the_option(
    home: Path, options: tuple[str, ...], named: str
) -> None:
    run = launched(home, "claude", *options, "--", "--exit", "0", MOONSHOT_API_KEY="sk-x")
    assert run.returncode == 1
    assert f"  {named}: no provider has the model 'llama-9'" in run.stderr
    assert "MOONSHIM_JUDGE_MODEL" not in run.stderr, "the user did not set it"


def test_only_claude_code_has_an_auto_mode(home: Path) -> None:
    run = launched(home, "codex", "--judge")
    assert run.returncode == 2
    assert "--judge is about the auto mode of Claude Code" in run.stderr


def test_a_signal_that_ends_the_client_ends_the_launcher(home: Path) -> None:
    run = launched(home, "claude", "--demo", "--", "--kill")
    assert run.returncode == -signal.SIGKILL
    # The signal was sent after everything was put away.
    assert left_over(home) == []


@contextmanager
def waiting(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [*MOONSHIM, "launch", "claude", "--demo", *arguments, "--", "--wait"]
    with subprocess.Popen(command, env=env_of(home), cwd=home, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        try:
            yield process, said
        finally:
            process.kill()
            with suppress(ProcessLookupError):
                os.kill(said["pid"], signal.SIGKILL)  # a killed launcher leaves its client


def test_a_signal_for_the_launcher_reaches_the_client(home: Path) -> None:
    with waiting(home) as (process, said):
        process.terminate()
        assert process.wait(DEADLINE) == 7
    assert gateway_ended(said["url"])
    assert left_over(home) == []


def test_a_killed_launcher_takes_its_gateway_along_and_the_next_launch_cleans_up(home: Path) -> None:
    with waiting(home) as (process, said):
        process.kill()
        process.wait()
        wait_until(lambda: gateway_ended(said["url"]), "the gateway ends", DEADLINE)
        assert [name for name in left_over(home) if name.startswith("launch-")] != []
    assert launched(home, "claude", "--demo", "--", "--exit", "0").returncode == 0
    assert left_over(home) == []


def test_the_gateway_of_another_launcher_is_left_alone(home: Path) -> None:
    with waiting(home) as (_, said):
        other = json.loads(launched(home, "claude", "--demo", "--", "--exit", "0").stdout)
        assert other["url"] != said["url"]


def test_on_a_terminal_the_client_gets_its_size_and_the_interrupt(home: Path) -> None:
    command = [*MOONSHIM, "launch", "claude", "--demo", "--", "--wait"]
    with pexpect.spawn(
        command[0], command[1:], env=env_of(home), cwd=str(home), timeout=DEADLINE, encoding="utf-8"
    ) as it:
        it.expect('"answer": "message"')
        it.setwinsize(33, 77)
        it.expect("size 77 33")
        it.sendintr()
        it.expect("interrupted")
        it.kill(signal.SIGTERM)
        it.expect(pexpect.EOF)
    assert it.exitstatus == 7
    assert left_over(home) == []


def test_a_shell_can_stop_and_continue_it(home: Path) -> None:
    """Ctrl-Z and `fg`, in an interactive bash."""
    command = " ".join([*MOONSHIM, "launch claude --demo -- --wait"])
    args = ["--norc", "-i"]
    env = env_of(home, PS1="ready> ")
    with pexpect.spawn("bash", args, env=env, cwd=str(home), timeout=DEADLINE, encoding="utf-8") as shell:
        shell.expect("ready> ")
        shell.sendline(command)
        shell.expect('"answer": "message"')
        shell.sendcontrol("z")
        shell.expect("Stopped")
        shell.sendline("fg")
        shell.expect("-- --wait\r\n")
        # The shell shows the command before it continues it: try until the client has the terminal again.
        columns = iter(range(50, 50 + int(DEADLINE)))
        shell.setwinsize(20, next(columns))
        while shell.expect([r"size \d+ 20", pexpect.TIMEOUT], timeout=1):
            shell.setwinsize(20, next(columns))
        shell.sendintr()
        shell.expect("interrupted")
        shell.sendcontrol("z")
        shell.expect("Stopped")
        shell.sendline("kill %1; fg; echo code $?")
        shell.expect("code 7")
        shell.sendline("exit")
        shell.expect(pexpect.EOF)


@contextmanager
def served(home: Path, *arguments: str, **changes: str) -> Iterator[str]:
    command = [*MOONSHIM, "serve", "--port", "0", *arguments]
    env = env_of(home, **changes)
    with subprocess.Popen(command, env=env, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (gateway,) = running_gateways(env)
        yield gateway.url
        process.terminate()
        process.wait(DEADLINE)


def test_a_running_gateway_is_used_and_goes_on(home: Path) -> None:
    with served(home, "--demo") as url:
        (path,) = run_folder(home).glob("gateway-*.json")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        said = json.loads(launched(home, "claude", "--demo", "--", "--exit", "0").stdout)
        assert said["url"] == url
        assert not gateway_ended(url)
    assert left_over(home) == []


def test_a_gateway_that_was_kept_serves_the_next_launch(home: Path) -> None:
    first = json.loads(launched(home, "claude", "--demo", "--keep-gateway", "--", "--exit", "0").stdout)
    try:
        second = json.loads(launched(home, "claude", "--demo", "--", "--exit", "0").stdout)
        assert (second["url"], second["key"]) == (first["url"], first["key"])
    finally:
        (gateway,) = running_gateways(env_of(home))
        os.kill(gateway.pid, signal.SIGTERM)
    wait_until(lambda: gateway_ended(first["url"]), "the gateway ends", DEADLINE)


def test_a_gateway_that_is_kept_is_named_with_how_to_stop_it(home: Path) -> None:
    run = launched(home, "claude", "--demo", "--keep-gateway", "--", "--exit", "0")
    url = json.loads(run.stdout)["url"]
    (gateway,) = running_gateways(env_of(home))
    end = f"kill {gateway.pid}"
    assert f"the gateway stays at {url} until you stop it or this machine restarts: {end}" in run.stderr
    os.kill(gateway.pid, signal.SIGTERM)
    wait_until(lambda: gateway_ended(url), "end of the gateway")


def test_a_run_file_that_others_can_write_is_not_believed(home: Path) -> None:
    folder = run_folder(home)
    folder.mkdir(parents=True)
    path = folder / f"gateway-{os.getpid()}.json"
    path.write_text(json.dumps({"pid": os.getpid(), "url": "http://127.0.0.1:9", "demo": True}))
    path.chmod(0o666)
    assert running_gateways(env_of(home)) == []
    path.chmod(0o600)
    assert [gateway.url for gateway in running_gateways(env_of(home))] == ["http://127.0.0.1:9"]


@pytest.mark.parametrize("kind", ["pipe", "large", "link"])
def test_a_run_file_that_cannot_be_one_is_left_alone(home: Path, kind: str) -> None:
    folder = run_folder(home)
    folder.mkdir(parents=True, mode=0o700)
    path = folder / "gateway-1.json"
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.touch(0o600)
        os.truncate(path, 3 << 30)
    assert running_gateways(env_of(home)) == []


# -- messages ------------------------------------------------------------------------------------------------------


def test_without_a_client_the_clients_are_listed(home: Path) -> None:
    run = launched(home)
    assert run.returncode == 0
    assert "claude" in run.stdout
    assert "npm install -g @openai/codex" in run.stdout or "Codex" in run.stdout


def test_on_a_terminal_a_client_is_chosen_from_the_list(home: Path) -> None:
    command = [*MOONSHIM, "launch"]
    child = pexpect.spawn(command[0], command[1:], env=env_of(home), encoding="utf-8", timeout=DEADLINE)
    child.expect("1  claude .* installed")
    child.expect("Which one")
    child.sendline("nothing")
    child.expect("There is no nothing in this list")
    child.sendline("")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_client_that_was_chosen_is_started(home: Path) -> None:
    command = [*MOONSHIM, "launch", "--demo"]
    child = pexpect.spawn(command[0], command[1:], env=env_of(home), encoding="utf-8", timeout=DEADLINE)
    child.expect("Which one")
    child.sendline("1")
    child.expect('"answer": "message"')
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_client_has_a_second_name(home: Path) -> None:
    run = launched(home, "claude-code", "--demo", "--", "--exit", "0")
    assert json.loads(run.stdout)["answer"] == "message"


def test_a_session_can_be_resumed_by_the_launcher(home: Path) -> None:
    """Claude Code names itself as the program to resume with, which would not know the gateway."""
    folder = home / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(home))
    folder.mkdir(parents=True)
    (folder / "0-of-another-day.jsonl").touch()
    os.utime(folder / "0-of-another-day.jsonl", (1, 1))
    command = [*MOONSHIM, "launch", "claude-code", "--demo", "--", "--wait"]
    child = pexpect.spawn(command[0], command[1:], cwd=str(home), env=env_of(home), encoding="utf-8", timeout=DEADLINE)
    child.expect('"pid": ([0-9]+)')
    (folder / "5-of-today.jsonl").touch()
    os.kill(int(child.match[1]), signal.SIGTERM)
    child.expect("continue this session with: moonshim launch claude-code --demo -- --resume 5-of-today")
    child.expect(pexpect.EOF)
    child.close()


def test_an_older_session_is_not_mentioned(home: Path) -> None:
    command = [*MOONSHIM, "launch", "claude", "--demo", "--", "--exit", "0"]
    child = pexpect.spawn(command[0], command[1:], cwd=str(home), env=env_of(home), encoding="utf-8", timeout=DEADLINE)
    child.expect(pexpect.EOF)
    assert "continue this session" not in child.before


def test_a_client_that_is_missing_is_named_with_its_installation(home: Path) -> None:
    run = launched(home, "codex", "--demo", PATH=str(home / "bin"))
    assert run.returncode == 127
    assert run.stderr == "moonshim launch: Codex is not installed. Install it with: npm install -g @openai/codex\n"


def test_no_key_is_said_in_one_sentence(home: Path) -> None:
    run = launched(home, "claude")
    assert run.returncode == 1
    assert "MOONSHOT_API_KEY" in run.stderr
    assert "add `--demo` to the command" in run.stderr
    assert left_over(home) == []


def test_a_key_that_the_host_refuses_is_reported_before_the_client_starts(home: Path) -> None:
    with Simulator(behaviour="moonshot", api_key="sk-right", log=lambda seen: None).running() as host:
        changes = {"MOONSHOT_API_KEY": "sk-wrong-key-1234567890", "MOONSHOT_BASE_URL": f"{host.url}/v1"}
        run = launched(home, "claude", "--", "--exit", "0", **changes)
        assert run.returncode == 1
        assert "kimi-k3" in run.stderr
        assert "sk-wrong-key" not in run.stderr
        assert run.stdout == ""
        unchecked = launched(home, "claude", "--no-check", "--", "--exit", "0", **changes)
        assert json.loads(unchecked.stdout)["answer"] == 401


def test_the_test_request_names_the_client_to_a_host_that_accepts_only_known_agents(home: Path) -> None:
    with Simulator(behaviour="kimi-coding", api_key="sk-kimi-1", log=lambda seen: None).running() as host:
        address = {"KIMI_BASE_URL": f"{host.url}/coding/v1"}
        run = launched(home, "claude", "--", "--exit", "0", KIMI_API_KEY="sk-kimi-1", **address)
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout)["answer"] == "message"
        run = launched(home, "claude", "--", "--exit", "0", KIMI_API_KEY="sk-wrong-key-1234567890", **address)
        assert run.returncode == 1
        assert run.stderr.endswith("\nTo start Claude Code without a test, pass --no-check.\n")


def test_a_gateway_that_was_running_is_named(home: Path) -> None:
    path = home / "other.json"
    path.write_text('{"providers": [{"name": "sim", "api_base_url": "http://127.0.0.1:9/v1"}]}')
    path.chmod(0o600)
    with served(home, "--config", str(path)) as url:
        run = launched(home, "claude", MOONSHOT_API_KEY="sk-1")
        where = f"{url} ({path})"
        assert run.stderr == (
            f"moonshim launch: The gateway at {where} lists no model. "
            "Name one with --model, or use another file with --config.\n"
        )
        run = launched(home, "claude", "--model", "sim/kimi-k3", "--no-check", "--", "--exit", "0")
        assert (
            run.stderr == f"moonshim launch: using the running gateway at {where}; --config FILE starts another one\n"
        )


def test_print_env_masks_the_key_and_starts_nothing(home: Path) -> None:
    run = launched(home, "claude", "--demo", "--print-env")
    assert run.returncode == 0
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:" in run.stdout
    first = run.stdout.splitlines()[0]
    assert first == "# To read, not to run: the gateway and the settings file exist only while a client runs."
    assert "msk_" not in run.stdout
    assert '"answer"' not in run.stdout
    assert "msk_" in launched(home, "claude", "--demo", "--print-env", "--show-keys").stdout
    assert left_over(home) == []


@pytest.mark.parametrize(
    ("aliases", "options", "chosen"),
    [
        ({"claude-*": "kimi-k3", "claude-*haiku*": "kimi-k2.6"}, (), ("kimi-k3", "kimi-k2.6")),
        ({"claude-*": "kimi-k3", "claude-haiku-*": "kimi-k2.6"}, (), ("kimi-k3", "kimi-k2.6")),
        ({"claude-*": "kimi-k3", "claude-*haiku*": "kimi-k2.6"}, ("--model", "kimi-k2.5"), ("kimi-k2.5", "kimi-k2.6")),
        (
            {"claude-*": "kimi-k3", "claude-*haiku*": "kimi-k2.6"},
            ("--small-model", "kimi-k2.5"),
            ("kimi-k3", "kimi-k2.5"),
        ),
        # An alias for every model says nothing about small ones.
        ({"claude-*": "kimi-k3"}, ("--model", "kimi-k2.5"), ("kimi-k2.5", "kimi-k2.5")),
        (
            {"claude-*": "kimi-k3", "claude-*haiku*": "kimi-k2.6"},
            ("--provider", "other"),
            ("other/kimi-k3", "other/kimi-k3"),
        ),
    ],
)
def test_the_small_model_is_that_of_its_alias(
    home: Path, aliases: dict[str, str], options: tuple[str, ...], chosen: tuple[str, str]
) -> None:
    models = ["kimi-k3", "kimi-k2.6", "kimi-k2.5"]
    providers = [
        {"name": name, "api_base_url": "http://127.0.0.1:9/v1", "models": models[: 3 - at]}
        for at, name in enumerate(("sim", "other"))
    ]
    path = home / "moonshim.json"
    path.write_text(json.dumps({"providers": providers, "aliases": aliases}))
    run = launched(home, "claude", "--config", str(path), "--print-env", *options)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert f"export ANTHROPIC_MODEL={chosen[0]}" in lines
    assert f"export ANTHROPIC_DEFAULT_HAIKU_MODEL={chosen[1]}" in lines


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), ("claude-moonshim", "claude-haiku-4-5-20251001")),
        (("--small-model", "kimi-k2.6"), ("claude-moonshim", "kimi-k2.6")),
        (("--model", "kimi-k3"), ("kimi-k3", "kimi-k3")),
    ],
)
def test_with_routes_the_client_asks_for_a_name_that_is_routed(
    home: Path, options: tuple[str, ...], chosen: tuple[str, str]
) -> None:
    """Otherwise no route would ever apply: a model that is requested by its own name is not routed."""
    provider = {"name": "sim", "api_base_url": "http://127.0.0.1:9/v1", "models": ["kimi-k3", "kimi-k2.6"]}
    routes = {"background": "kimi-k2.6", "think": "kimi-k3"}
    path = home / "moonshim.json"
    # Files of claude-code-router always have `default`.
    aliases = {"claude-*": "kimi-k3", "default": "kimi-k3"}
    path.write_text(json.dumps({"providers": [provider], "aliases": aliases, "routes": routes}))
    run = launched(home, "claude", "--config", str(path), "--print-env", *options)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert f"export ANTHROPIC_MODEL={chosen[0]}" in lines
    assert f"export ANTHROPIC_DEFAULT_HAIKU_MODEL={chosen[1]}" in lines
    assert "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=1048576" in lines


@pytest.mark.parametrize(("client", "title"), [("kimi", "kimi-code"), ("pi", "pi")])
def test_a_client_without_a_small_model_says_so(home: Path, client: str, title: str) -> None:
    run = launched(home, client, "--demo", "--model", "kimi-k3", "--small-model", "nonesuch", "--print-env")
    assert run.stderr == f"moonshim launch: {title} has no small model, so --small-model has no effect.\n"
    assert run.stdout.splitlines()[0] == f"# {title} has no small model: it uses kimi-k3 only."
    assert launched(home, client, "--demo", "--print-env").stderr == ""


def test_a_model_and_a_provider_can_be_chosen(home: Path) -> None:
    said = json.loads(launched(home, "claude", "--demo", "--model", "kimi-k3", "--", "--exit", "0").stdout)
    assert said["model"] == "kimi-k3"
    said = json.loads(launched(home, "claude", "--demo", "--model", "kimi-k3[1m]", "--", "--exit", "0").stdout)
    assert said["model"] == "kimi-k3"
    run = launched(home, "claude", "--demo", "--provider", "nowhere", "--", "--exit", "0")
    assert (run.returncode, run.stdout) == (1, "")
    assert "no model of provider 'nowhere'" in run.stderr
    assert "Its providers: demo, demo-messages" in run.stderr


@pytest.mark.parametrize(
    ("alias", "options", "chosen"),
    [
        ("second/kimi-k2.5", (), "second/kimi-k2.5"),  # the plain name is that of the first provider
        ("any/kimi-k3", (), "any/kimi-k3"),  # no provider lists it
        ("any/kimi-k3", ("--provider", "first"), "kimi-k2.5"),
        ("second/kimi-k2.5", ("--provider", "any", "--model", "kimi-k3"), "any/kimi-k3"),
    ],
)
def test_the_model_of_an_alias_is_used_at_its_provider(
    home: Path, alias: str, options: tuple[str, ...], chosen: str
) -> None:
    lists: dict[str, dict[str, Any]] = {
        "first": {"models": ["kimi-k2.5"]},
        "second": {"models": ["kimi-k2.5"]},
        "any": {},
    }
    providers = [{"name": name, "api_base_url": "http://127.0.0.1:9/v1", **more} for name, more in lists.items()]
    path = home / "moonshim.json"
    path.write_text(json.dumps({"providers": providers, "aliases": {"claude-*": alias}}))
    run = launched(home, "claude", "--config", str(path), "--print-env", *options)
    assert run.returncode == 0, run.stderr
    assert f"export ANTHROPIC_MODEL={chosen}" in run.stdout.splitlines()


@pytest.mark.parametrize("option", ["--model", "--small-model"])
def test_a_model_that_the_gateway_does_not_have_is_reported(home: Path, option: str) -> None:
    """Also where no test request is sent: otherwise every request of the client would fail."""
    run = launched(home, "claude", "--demo", option, "nonesuch", "--", "--exit", "0")
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("moonshim launch: Model 'nonesuch' not found.")


def test_the_run_file_of_a_gateway_that_was_killed_is_removed_also_if_none_is_looked_for(home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    run_folder(home).mkdir(mode=0o700, parents=True)
    path = run_folder(home) / f"gateway-{ended.pid}.json"
    path.write_text(json.dumps({"pid": ended.pid, "url": "http://127.0.0.1:9", "key": "msk_old"}))
    path.chmod(0o600)
    config = home / "moonshim.json"
    provider = {"name": "sim", "api_base_url": "http://127.0.0.1:9/v1", "models": ["kimi-k3"]}
    config.write_text(json.dumps({"providers": [provider]}))
    assert launched(home, "claude", "--config", str(config), "--print-env").returncode == 0
    assert left_over(home) == []


def test_a_host_whose_name_cannot_be_resolved_is_reported_and_nothing_starts(home: Path) -> None:
    """Claude Code tries for minutes, and shows nothing."""
    config = home / "moonshim.json"
    provider = {"name": "sim", "api_base_url": "http://no-such-host.invalid/v1", "models": ["kimi-k3"]}
    config.write_text(json.dumps({"providers": [provider]}))
    run = launched(home, "claude", "--config", str(config), "--", "--exit", "4")
    assert (run.returncode, run.stdout) == (1, "")
    assert "cannot resolve no-such-host.invalid:80" in run.stderr
    assert "--no-check" in run.stderr


def test_a_host_that_does_not_answer_is_reported_and_the_client_starts(home: Path) -> None:
    """It may answer in a minute: only a refusal is a reason not to start."""
    config = home / "moonshim.json"
    provider = {"name": "sim", "api_base_url": "http://127.0.0.1:9/v1", "models": ["kimi-k3"]}
    config.write_text(json.dumps({"providers": [provider]}))
    run = launched(home, "claude", "--config", str(config), "--", "--exit", "4")
    assert run.returncode == 4
    assert run.stderr == (
        "moonshim launch: the test request for kimi-k3 failed: no connection to 127.0.0.1:9: connection refused; "
        "starting Claude Code anyway\n"
    )
