"""`moonshim doctor` as a user runs it: a process of its own, hosts on real sockets, exit codes, JSON, a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.doctor.report import ADVICE
from tests.doctor.checking import MARKERS, chat_host, chat_stream, error, events, says
from tests.support.command import MOONSHIM, ROOT, CompletedCommand, environment, run_moonshim
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, run
from tests.support.redis_server import running_redis

KEY: Final = "sk-very-secret-key-0123456789"


def configuration(folder: Path, more: str = "", **urls: str) -> Path:
    """A file with a provider for each name."""
    file = folder / "moonshim.toml"
    file.write_text(
        "\n".join(
            f'[[providers]]\nname = "{name}"\napi_base_url = "{url}/v1"\napi_key_env = "LAB_KEY"\n'
            f'models = ["kimi-k2.5"]\nhost = "vllm"\n{more}'
            for name, url in urls.items()
        )
    )
    return file


def doctor(folder: Path, *arguments: str, more: str = "", **hosts: Script) -> CompletedCommand:
    """Run it while these hosts serve."""

    async def ask() -> CompletedCommand:
        serving = {name: Host(script) for name, script in hosts.items()}
        for host in serving.values():
            await host.__aenter__()
        file = configuration(folder, more, **{name: host.url for name, host in serving.items()})
        done = await asyncio.to_thread(run_moonshim, "doctor", "--config", file, *arguments, LAB_KEY=KEY)
        for host in serving.values():
            assert all(asked.headers["authorization"] == f"Bearer {KEY}" for asked in host.requests)
            await host.__aexit__(None, None, None)
        return done

    done = run(ask())
    assert KEY.encode() not in done.out
    assert KEY not in done.stderr
    return done


def objects(done: CompletedCommand) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def refusing() -> Script:
    return says(error("401 Unauthorized", f"Incorrect API key provided: {KEY}", "invalid_authentication_error"))


def test_a_variable_that_leaves_claude_code_without_a_check_is_mentioned(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.touch(0o755)
    name = "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"
    environ: dict[str, Any] = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", name: "1"}

    async def ask() -> CompletedCommand:
        async with Host(chat_host()) as host:
            file = configuration(tmp_path, lab=host.url)
            return await asyncio.to_thread(run_moonshim, "doctor", "--config", file, LAB_KEY=KEY, **environ)

    done = run(ask())
    assert done.code == 0
    assert f"! {name} is set in the environment: " in done.out.decode()


def test_all_that_is_right_is_told_and_the_exit_code_is_0(tmp_path: Path) -> None:
    done = doctor(tmp_path, lab=chat_host())
    assert (done.code, done.stderr) == (0, "")
    first, *rest = done.out.decode().splitlines()
    assert first == "✓ lab/kimi-k2.5  key, address, model and dialect are correct; no repairs needed"
    text = "\n".join(rest)
    assert "accepted (from LAB_KEY)" in text
    assert "repairs   none" in text
    assert "200 tokens in, 20 out" in text


def test_one_that_is_wrong_does_not_hide_the_others_and_the_exit_code_is_1(tmp_path: Path) -> None:
    leaking = chat_host(events(chat_stream({"content": MARKERS})))
    done = doctor(tmp_path, bad=refusing(), leaky=leaking)
    assert done.code == 1
    text = done.out.decode()
    assert re.findall(r"^[✓✗] \S+", text, re.MULTILINE) == ["✗ bad/kimi-k2.5", "✓ leaky/kimi-k2.5"]
    assert "rejected (from LAB_KEY): 401" in text
    assert "→ use a complete, unexpired key of this host" in text
    assert "repairs: markers×1" in text


def test_what_budgets_need_and_lack_is_reported(tmp_path: Path) -> None:
    """Counters that a full Redis would delete, a store that is gone, and usage records in memory only."""

    def gateway(store: str) -> str:
        digest = "sha256:" + "0" * 64
        key = f'[[keys]]\nname = "ci"\ndigest = "{digest}"\nbudgets = [{{ period = "day", tokens = 1 }}]\n'
        return f'{key}[gateway]\nstore = "{store}"\n[usage]\nfile = "memory:"\n'

    with running_redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as redis:
        done = doctor(tmp_path, more=gateway(redis.url), lab=chat_host())
        text = done.out.decode()
        assert done.code == 0
        assert "! keys have budgets, but usage records are in memory only" in text
        assert "! Redis has the maxmemory-policy allkeys-lru" in text
        redis.stop()
        text = doctor(tmp_path, more=gateway(redis.url), lab=chat_host()).out.decode()
        assert "! the store cannot be used: " in text


def test_json_is_one_object_for_each_provider(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", bad=refusing(), good=chat_host())
    assert done.code == 1
    bad, good = objects(done)
    assert (bad["provider"], bad["right"], good["provider"], good["right"]) == ("bad", False, "good", True)
    [finding] = [one for one in bad["findings"] if one["state"] == "wrong"]
    assert (finding["topic"], finding["cause"]) == ("key", "authentication")
    assert finding["advice"] == ADVICE["authentication"]
    assert (good["call"], good["repairs"], good["input_tokens"]) == ("native", {}, 200)
    assert good["verdict"].startswith("key, address, model and dialect are correct")


def test_a_refused_field_of_the_configuration_is_not_blamed_on_the_model(tmp_path: Path) -> None:
    host = chat_host(error("400 Bad Request", "invalid temperature: only 1 is allowed for this model"))
    told = doctor(tmp_path, "--model", "lab/my-alias", more="body = { temperature = 0.3 }\n", lab=host).out.decode()
    assert "✗ lab/my-alias  answer: 400, invalid temperature" in told
    assert "→ the host rejects `body.temperature` of your configuration" in told
    told = doctor(tmp_path, "--model", "lab/my-alias", lab=host).out.decode()
    assert "✗ lab/my-alias  answer: 400" in told, "the host said nothing of the model's name"


def test_only_the_providers_that_are_named_are_asked(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--provider", "good", "--json", bad=refusing(), good=chat_host())
    assert done.code == 0
    assert [one["provider"] for one in objects(done)] == ["good"]


def test_the_model_that_is_named_is_asked_for(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--model", "lab/kimi-k3", "--json", lab=chat_host())
    assert objects(done)[0]["model"] == "kimi-k3"


def test_a_host_that_is_too_slow_is_not_waited_for(tmp_path: Path) -> None:
    async def silent(peer: Peer, asked: HostRequest) -> None:
        await peer.gone()

    done = doctor(tmp_path, "--timeout", "0.3", lab=silent)
    assert done.code == 1
    assert "sent no response within 0.3 seconds" in done.out.decode()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--timeout", "soon"], "expected a number of seconds above 0, at most 3600, got 'soon'"),
        (["--timeout", "0"], "at most 3600, got '0'"),
        (["--user-agent", "a\nb"], "expected printable ASCII characters"),
        (["--provider", "lob"], "did you mean 'lab'?"),
        (["--config", "nowhere.toml"], "no such file"),
        (["lab"], "unrecognized arguments"),
    ],
)
def test_wrong_use_is_told_with_exit_code_2(tmp_path: Path, arguments: list[str], told: str) -> None:
    configuration(tmp_path, lab="http://127.0.0.1:9")
    done = run_moonshim("doctor", *arguments, cwd=tmp_path, LAB_KEY=KEY, MOONSHIM_CONFIG="moonshim.toml")
    assert (done.code, done.out) == (2, b"")
    assert told in done.stderr


def test_with_nothing_configured_it_names_what_it_looked_for(tmp_path: Path) -> None:
    environ = {name: value for name, value in environment(HOME=str(tmp_path)).items() if not name.endswith("_API_KEY")}
    environ = {name: value for name, value in environ.items() if name not in ("MOONSHIM_CONFIG", "XDG_CONFIG_HOME")}
    ran = subprocess.run([*MOONSHIM, "doctor"], capture_output=True, cwd=tmp_path, env=environ, timeout=60, check=False)
    done = CompletedCommand(ran)
    assert (done.code, done.out) == (2, b"")
    assert "MOONSHOT_API_KEY" in done.stderr
    assert "moonshim config example" in done.stderr


def test_on_a_terminal_there_are_colours_and_a_line_of_progress_that_goes_away(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    from tests.cli.test_terminal import read_terminal

    async def ask() -> bytes:
        async with Host(chat_host()) as host:
            ours, theirs = pty.openpty()
            command = [*MOONSHIM, "doctor", "--config", str(configuration(tmp_path, lab=host.url))]
            process = subprocess.Popen(
                command, env=environment(LAB_KEY=KEY), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
            )
            os.close(theirs)
            shown = await asyncio.to_thread(read_terminal, ours)
            os.close(ours)
            assert await asyncio.to_thread(process.wait, 20) == 0
            return shown

    shown = run(ask()).decode()
    assert shown.startswith("checking lab …\r\x1b[K")
    assert "\x1b[32m✓\x1b[0m \x1b[1mlab/kimi-k2.5\x1b[0m" in shown


def test_the_page_has_every_cause() -> None:
    page = (ROOT / "docs" / "operations" / "doctor.md").read_text()
    table = page.partition("| Topic | Cause |")[2].partition("\n\n")[0]
    causes = {word for row in table.splitlines()[2:] for word in re.findall(r"`([a-z_]+)`", row.split("|")[2])}
    assert causes == set(ADVICE)


def test_every_cause_that_a_check_can_name_has_an_advice() -> None:
    source = (ROOT / "src" / "moonshim" / "doctor" / "check.py").read_text()
    named = re.findall(r'_wrong\(\s*"\w+", "(\w+)"', source)
    assert len(set(named)) > 10
    assert set(named) <= set(ADVICE)
