"""`moonshim init`, as a user runs it: at a real terminal and in scripts, against a simulated host."""

from __future__ import annotations

import os
import re
import signal
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.config.known_hosts import INIT_HOSTS, KNOWN_HOSTS, KnownHost
from moonshim.simulator import Simulator
from tests.support.command import MOONSHIM, CompletedCommand, environment, run_moonshim

pexpect = pytest.importorskip("pexpect")

DEADLINE: Final = 120
KEY: Final = "sk-5ecret-0123456789$abc"
TYPED: Final = KEY.replace("$", "$$")


@pytest.fixture(autouse=True)
def _nothing_configured(nothing_configured: None) -> None:
    """An empty home folder."""


@pytest.fixture(scope="module")
def host() -> Iterator[Simulator]:
    with Simulator(behaviour="moonshot", api_key=KEY).running() as simulator:
        yield simulator


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Where the file is expected."""
    return tmp_path / "home" / ".config" / "moonshim" / "moonshim.toml"


def init(*arguments: str | Path, cwd: Path, **changes: str) -> CompletedCommand:
    return run_moonshim("init", *arguments, stdin=b"", cwd=cwd, **changes)


def at_terminal(cwd: Path, *arguments: str, **changes: str) -> Any:
    return pexpect.spawn(
        MOONSHIM[0],
        [*MOONSHIM[1:], "init", *arguments],
        env=environment(NO_COLOR="1", **changes),
        cwd=str(cwd),
        timeout=DEADLINE,
        encoding="utf-8",
        dimensions=(50, 160),
        # The tests may run in the background, where shells ignore Ctrl-C; a terminal of a user does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def interrupt(it: Any, reaction: str) -> None:
    """Press Ctrl-C until there is a reaction: Python misses one that comes just before it waits for input."""
    for _ in range(DEADLINE // 10):
        it.sendintr()
        if it.expect([reaction, pexpect.TIMEOUT], timeout=10) == 0:
            return
    pytest.fail(f"Ctrl-C had no effect: {it.before}")


def read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def files(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir()) if path.parent.exists() else []


class TestAtTheTerminal:
    def test_a_known_host_with_its_key_in_a_variable(self, host: Simulator, folder: Path, saved: Path) -> None:
        given = {"MOONSHOT_API_KEY": KEY, "MOONSHOT_BASE_URL": f"{host.url}/v1"}
        with at_terminal(folder, **given) as it:
            it.expect(rf"moonshot +{re.escape(host.url)}/v1 +\(MOONSHOT_API_KEY is set\)")
            it.expect(r"Number or name \[moonshot\]: ")
            it.sendline("")
            it.expect(r"Number or name \[variable\]: ")
            it.sendline("")
            it.expect(r"Name of the variable \[MOONSHOT_API_KEY\]: ")
            it.sendline("")
            it.expect("Testing moonshot with a tool call")
            it.expect("✓ moonshot/kimi-k3")
            it.expect(r"Model for Claude Code \(claude-\*\) \[kimi-k3\]: ")
            it.sendline("")
            it.expect(r"Model for Codex \(gpt-\*, codex-\*\) \[kimi-k3\]: ")
            it.sendline("kimi-k3.1-pro")
            it.expect(r"Small model for titles and summaries \(claude-\*haiku\*\) \[kimi-k3\]: ")
            it.sendline("kimi-k2.6")
            it.expect(f"Saved {re.escape(str(saved))}")
            it.expect("moonshim serve\r\n")
            it.expect("moonshim launch claude\r\n")
            it.expect(pexpect.EOF)
        assert it.exitstatus == 0
        (provider,) = read(saved)["providers"]
        assert provider["api_key_env"] == "MOONSHOT_API_KEY"
        assert read(saved)["aliases"] == {
            "claude-*": "moonshot/kimi-k3",
            "gpt-*": "moonshot/kimi-k3.1-pro",
            "codex-*": "moonshot/kimi-k3.1-pro",
            "claude-*haiku*": "moonshot/kimi-k2.6",
        }
        assert KEY not in saved.read_text()
        assert mode(saved) == 0o600
        assert files(saved) == ["moonshim.toml"]
        assert run_moonshim("doctor", stdin=b"", cwd=folder, **given).code == 0

    def test_a_host_is_asked_for_what_its_address_depends_on(self, folder: Path, saved: Path) -> None:
        with at_terminal(folder, "--no-check", CLOUDFLARE_API_TOKEN=KEY) as it:
            it.expect(
                r"cloudflare +https://api\.cloudflare\.com/client/v4/accounts/…/ai/v1 +\(CLOUDFLARE_API_TOKEN is set\)"
            )
            it.expect(r"Number or name \[cloudflare\]: ")
            it.sendline("")
            it.expect("Id of your Cloudflare account: ")
            it.sendline("a/b")
            it.expect("Expected letters, digits, dots and dashes.")
            it.sendline("0123abc")
            it.expect(r"Number or name \[variable\]: ")
            it.sendline("")
            it.expect(r"Name of the variable \[CLOUDFLARE_API_TOKEN\]: ")
            it.sendline("")
            for _ in range(3):
                it.expect(r"\[@cf/moonshotai/kimi-k2\.6\]: ")
                it.sendline("")
            it.expect(pexpect.EOF)
        (provider,) = read(saved)["providers"]
        assert provider["api_base_url"] == "https://api.cloudflare.com/client/v4/accounts/0123abc/ai/v1"
        assert (provider["name"], provider["api_key_env"]) == ("cloudflare", "CLOUDFLARE_API_TOKEN")

    def test_a_url_with_a_key_that_is_typed(self, host: Simulator, folder: Path, saved: Path) -> None:
        with at_terminal(folder) as it:
            it.expect(r"Number or name \[moonshot\]: ")
            it.sendline("vlm")
            it.expect(r"Enter a number from 1 to \d+, or a name \(did you mean 'vllm'\?\)\.")
            it.sendline("vllm")
            it.expect(r"URL of the API \[http://localhost:8000/v1\]: ")
            it.sendline("localhost")
            it.expect("Expected an http:// or https:// URL")
            it.sendline(f"{host.url}/v1")
            it.expect(r"Number or name \[none\]: ")
            it.sendline("type")
            it.expect("API key .not shown.: ")
            it.waitnoecho(DEADLINE)
            it.sendline("sk-wrong")
            it.expect("✗ vllm/")
            it.expect(r"The test failed. What now\?")
            it.expect(r"Number or name \[again\]: ")
            it.sendline("")
            it.expect(r"Number or name \[vllm\]: ")
            it.sendline("")
            it.expect(rf"URL of the API \[{re.escape(host.url)}/v1\]: ")
            it.sendline("")
            it.expect(r"Number or name \[none\]: ")
            it.sendline("2")
            it.expect("API key .not shown.: ")
            it.waitnoecho(DEADLINE)
            it.sendline(KEY)
            it.expect("✓ vllm/(kimi[^ ]*)")
            model = it.match[1]
            it.expect(rf"Model for Claude Code \(claude-\*\) \[{re.escape(model)}\]: ")
            shown = it.before
            it.sendline("")
            it.expect("Model for Codex")
            it.sendline("")
            it.expect("Small model")
            it.sendline("")
            it.expect("Next:")
            it.expect(pexpect.EOF)
            shown += it.before
        assert it.exitstatus == 0
        assert KEY not in shown
        (provider,) = read(saved)["providers"]
        assert provider == {
            "name": "vllm",
            "api_base_url": f"{host.url}/v1",
            "host": "vllm",
            "api_key": TYPED,
            "models": [model],
        }
        assert mode(saved) == 0o600
        assert run_moonshim("doctor", cwd=folder).code == 0

    def test_a_url_can_be_typed_in_place_of_a_host(self, host: Simulator, folder: Path, saved: Path) -> None:
        with at_terminal(folder, "--no-check", "--model", "kimi-k3") as it:
            it.expect(r"Number or name \[moonshot\]: ")
            it.sendline(f"{host.url}/v1")
            it.expect("Where is the API key for local")
            it.expect(r"Number or name \[none\]: ")
            it.sendline("")
            it.expect("Saved")
            it.expect(pexpect.EOF)
        (provider,) = read(saved)["providers"]
        assert (provider["name"], provider["api_base_url"]) == ("local", f"{host.url}/v1")

    @pytest.mark.parametrize("where", ["host", "key", "model"])
    def test_ctrl_c_saves_nothing(self, where: str, host: Simulator, folder: Path, saved: Path) -> None:
        given = {"MOONSHOT_API_KEY": KEY, "MOONSHOT_BASE_URL": f"{host.url}/v1"}
        flags = {
            "host": [],
            "key": ["--host", "moonshot"],
            "model": ["--host", "moonshot", "--key-env", "MOONSHOT_API_KEY"],
        }
        with at_terminal(folder, *flags[where], **given) as it:
            it.expect({"host": "Number or name", "key": "Number or name", "model": "Model for Claude Code"}[where])
            interrupt(it, "cancelled; nothing was saved")
            it.expect(pexpect.EOF)
            assert "Traceback" not in it.before
        assert it.exitstatus == 130
        assert not saved.parent.exists()

    def test_the_end_of_input_saves_nothing(self, folder: Path, saved: Path) -> None:
        with at_terminal(folder) as it:
            it.expect("Number or name")
            it.sendeof()
            it.expect("cancelled; nothing was saved")
            it.expect(pexpect.EOF)
        assert it.exitstatus == 1
        assert not saved.parent.exists()

    def test_a_file_is_replaced_only_after_a_yes(self, folder: Path, saved: Path) -> None:
        saved.parent.mkdir(parents=True)
        saved.write_text("# mine\n")
        saved.chmod(0o644)
        flags = ("--host", "moonshot", "--key-env", "MOONSHOT_API_KEY", "--model", "kimi-k3", "--no-check")
        with at_terminal(folder, *flags) as it:
            it.expect(r"exists. Replace it\? A backup is saved. \[y/N\] ")
            it.sendline("")
            it.expect("cancelled; nothing was saved")
            it.expect(pexpect.EOF)
        assert (it.exitstatus, saved.read_text(), files(saved)) == (1, "# mine\n", ["moonshim.toml"])
        with at_terminal(folder, *flags) as it:
            it.expect(r"\[y/N\] ")
            it.sendline("y")
            it.expect("The previous file is now ")
            it.expect("export MOONSHOT_API_KEY=")
            it.expect(pexpect.EOF)
        assert it.exitstatus == 0
        name, backup = files(saved)
        assert re.fullmatch(r"moonshim\.toml\.bak-\d{8}-\d{6}", backup), name
        assert (saved.parent / backup).read_text() == "# mine\n"
        assert mode(saved) == mode(saved.parent / backup) == 0o600


class TestInScripts:
    @pytest.mark.parametrize(
        ("flags", "missing"),
        [
            ([], "pass --host NAME or --url URL"),
            (["--host", "moonshot"], "pass --key-env VAR, or --yes to use MOONSHOT_API_KEY"),
            (["--host", "moonshot", "--key-env", "K"], "pass --model MODEL, or --yes to use kimi-k3"),
            (["--url", "http://127.0.0.1:9/v1"], "pass --model MODEL"),
            (["--url", "http://127.0.0.1:9/v1", "--yes", "--no-check"], "pass --model MODEL"),
            (["--yes"], "pass --host NAME or --url URL"),
        ],
    )
    def test_a_missing_flag_is_named_in_one_line(
        self, flags: list[str], missing: str, folder: Path, saved: Path
    ) -> None:
        done = init(*flags, cwd=folder)
        assert (done.code, done.out) == (2, b"")
        assert done.lines == [f"moonshim init: there is no terminal to ask on: {missing}"]
        assert not saved.parent.exists()

    def test_flags_are_enough(self, host: Simulator, folder: Path, saved: Path) -> None:
        flags = ("--url", f"{host.url}/v1", "--host", "moonshot", "--key-env", "LAB_KEY", "--model", "kimi-k3")
        done = init(*flags, "--alias", "fast=kimi-k2.6", "--alias", "gpt-*=kimi-k2.5", cwd=folder, LAB_KEY=KEY)
        assert done.code == 0, done.stderr
        assert KEY not in done.stderr + done.out.decode() + saved.read_text()
        assert read(saved) == {
            "providers": [
                {
                    "name": "moonshot",
                    "api_base_url": f"{host.url}/v1",
                    "host": "moonshot",
                    "api_key_env": "LAB_KEY",
                    "models": ["kimi-k3", "kimi-k2.6", "kimi-k2.5"],
                }
            ],
            "aliases": {
                "claude-*": "moonshot/kimi-k3",
                "gpt-*": "moonshot/kimi-k2.5",
                "codex-*": "moonshot/kimi-k3",
                "fast": "moonshot/kimi-k2.6",
            },
        }

    def test_the_note_about_the_window_is_not_saved(self, host: Simulator, folder: Path, saved: Path) -> None:
        flags = ("--url", f"{host.url}/v1", "--host", "moonshot", "--key-env", "LAB_KEY", "--model", "kimi-k3[1m]")
        done = init(*flags, "--alias", "fast=kimi-k2.6[1m]", cwd=folder, LAB_KEY=KEY)
        assert done.code == 0, done.stderr
        assert read(saved)["providers"][0]["models"] == ["kimi-k3", "kimi-k2.6"]
        assert "[1m]" not in saved.read_text()

    def test_with_yes_the_model_of_a_server_is_the_one_that_it_lists(self, host: Simulator, folder: Path) -> None:
        done = init("--url", f"{host.url}/v1", "--key-env", "K", "--yes", "--output", "a.toml", cwd=folder, K=KEY)
        assert done.code == 0, done.stderr
        (provider,) = read(folder / "a.toml")["providers"]
        assert len(provider["models"]) == 1
        assert f"moonshim serve --config {folder / 'a.toml'}".encode() in done.out

    @pytest.mark.parametrize("known", [host.name for host in (*KNOWN_HOSTS, *INIT_HOSTS)])
    def test_every_known_host_works_by_name(self, known: str, folder: Path, saved: Path) -> None:
        row = next(host for host in (*KNOWN_HOSTS, *INIT_HOSTS) if host.name == known)
        parts = dict.fromkeys(row.address_parts, "mine.modal.run" if known == "modal" else "mine")
        flags = ("--host", known, "--yes", "--no-check", "--model", "kimi-k2.6")
        assert init(*flags, cwd=folder, **parts).code == 0
        assert read(saved)["providers"][0]["api_base_url"] == row.address(parts)
        assert mode(saved) == 0o600
        variable = read(saved)["providers"][0]["api_key_env"]
        checked = run_moonshim("config", "check", stdin=b"", cwd=folder, **{variable: "sk-1"})
        assert checked.code == 0, checked.stderr
        spelled = row.spellings
        assert read(saved)["aliases"]["claude-*"] == f"{known}/{spelled.get('kimi-k2.6', 'kimi-k2.6')}"
        assert all(target.endswith(spelled[name]) for name, target in read(saved)["aliases"].items() if name in spelled)

    @pytest.mark.parametrize("known", [host for host in INIT_HOSTS if host.default], ids=lambda host: host.name)
    def test_a_host_that_needs_a_file_gets_its_key_variable_and_model(
        self, known: KnownHost, folder: Path, saved: Path
    ) -> None:
        done = init("--host", known.name, "--yes", "--no-check", cwd=folder, **dict.fromkeys(known.address_parts, "me"))
        assert done.code == 0, done.stderr
        (provider,) = read(saved)["providers"]
        assert (provider["name"], provider["api_key_env"]) == (known.name, known.variable)
        assert read(saved)["aliases"]["claude-*"] == f"{known.name}/{known.default}"
        checked = run_moonshim("config", "check", stdin=b"", cwd=folder, **{known.variable: "sk-1"})
        assert checked.code == 0, checked.stderr

    def test_what_an_address_depends_on_has_to_be_said(self, folder: Path, saved: Path) -> None:
        done = init("--host", "cloudflare", "--yes", "--no-check", cwd=folder)
        assert done.code == 2
        expected = (
            "--host cloudflare: set CLOUDFLARE_ACCOUNT_ID to the id of your Cloudflare account, or pass --url URL"
        )
        assert done.lines == [f"moonshim init: {expected}"]
        done = init("--host", "azure", "--yes", cwd=folder, AZURE_RESOURCE_NAME="no good")
        assert (done.code, "set AZURE_RESOURCE_NAME" in done.stderr) == (2, True)
        assert not saved.exists()

    def test_a_host_whose_model_names_are_not_known_needs_one(self, folder: Path, saved: Path) -> None:
        done = init("--host", "volcengine", "--yes", cwd=folder, ARK_API_KEY=KEY)
        assert (done.code, "pass --model MODEL" in done.stderr) == (2, True)
        assert not saved.exists()

    def test_a_host_that_needs_a_file_is_tested_before_it_is_saved(
        self, host: Simulator, folder: Path, saved: Path
    ) -> None:
        address = {"OPENCODE_GO_BASE_URL": f"{host.url}/v1", "OPENCODE_API_KEY": KEY}
        done = init("--host", "opencode-go", "--yes", cwd=folder, **address)
        assert done.code == 0, done.out.decode() + done.stderr
        assert "✓ opencode-go/kimi-k3" in done.out.decode()
        assert read(saved)["providers"][0]["host"] == "opencode"

    def test_a_host_that_accepts_only_known_agents_is_tested_as_one(self, folder: Path, saved: Path) -> None:
        with Simulator(behaviour="kimi-coding", api_key=KEY).running() as coding:
            address = {"KIMI_API_KEY": KEY, "KIMI_BASE_URL": f"{coding.url}/coding/v1"}
            done = init("--host", "kimi", "--yes", cwd=folder, **address)
        assert done.code == 0, done.out.decode() + done.stderr
        assert "✓ kimi/kimi-for-coding" in done.out.decode()
        assert read(saved)["providers"][0]["host"] == "kimi-coding"

    def test_a_refused_key_is_not_saved(self, host: Simulator, folder: Path, saved: Path) -> None:
        flags = ("--host", "moonshot", "--yes")
        wrong = {"MOONSHOT_BASE_URL": f"{host.url}/v1", "MOONSHOT_API_KEY": "sk-wrong-0123456789"}
        done = init(*flags, cwd=folder, **wrong)
        assert done.code == 1
        assert "nothing was saved, because the test failed" in done.stderr
        assert "sk-wrong" not in done.stderr + done.out.decode()
        assert not saved.exists()
        assert init(*flags, "--no-check", cwd=folder, **wrong).code == 0

    def test_a_variable_that_is_not_set_cannot_be_tested(self, folder: Path, saved: Path) -> None:
        done = init("--host", "moonshot", "--yes", cwd=folder)
        assert done.code == 1
        (line,) = done.lines
        assert "environment variable MOONSHOT_API_KEY is not set" in line
        assert "pass --no-check" in line
        assert not saved.exists()

    def test_an_existing_file_needs_force_and_is_backed_up(self, folder: Path, saved: Path) -> None:
        saved.parent.mkdir(parents=True)
        saved.write_text("# mine\n")
        flags = ("--host", "moonshot", "--yes", "--no-check")
        done = init(*flags, cwd=folder)
        assert done.code == 1
        assert done.lines == [f"moonshim init: {saved}: the file exists. Pass --force to replace it; a backup is saved"]
        assert saved.read_text() == "# mine\n"
        assert init(*flags, "--force", cwd=folder).code == 0
        assert init(*flags, "--force", cwd=folder).code == 0
        backups = [saved.parent / name for name in files(saved) if ".bak-" in name]
        assert len(backups) == 2
        assert "# mine\n" in [backup.read_text() for backup in backups]
        assert {mode(path) for path in (saved, *backups)} == {0o600}

    def test_a_link_stays_a_link(self, folder: Path, saved: Path) -> None:
        saved.parent.mkdir(parents=True)
        (folder / "dotfiles.toml").write_text("# mine\n")
        saved.symlink_to(folder / "dotfiles.toml")
        assert init("--host", "moonshot", "--yes", "--no-check", "--force", cwd=folder).code == 0
        assert saved.is_symlink()
        assert read(folder / "dotfiles.toml")["providers"]

    @pytest.mark.parametrize("kind", ["loop", "pipe", "folder"])
    def test_an_output_that_is_not_a_file_is_one_line(self, folder: Path, kind: str) -> None:
        path = folder / "x.toml"
        if kind == "loop":
            path.symlink_to(path)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        done = init("--host", "moonshot", "--yes", "--no-check", "--force", "--output", "x.toml", cwd=folder)
        assert (done.code, len(done.lines)) == (1, 1), done.stderr
        assert "internal error" not in done.stderr
        assert sorted(one.name for one in folder.glob(".*")) == []

    def test_the_file_that_cannot_be_written_is_named(self, folder: Path) -> None:
        name = f"{'x' * 250}.toml"  # the name of its lock would be too long
        done = init("--host", "moonshot", "--yes", "--no-check", "--output", name, cwd=folder)
        assert (done.code, len(done.lines)) == (1, 1)
        assert f"{name}: cannot write this file: File name too long; choose another --output" in done.stderr
        assert ".lock" not in done.stderr

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_cannot_be_written_is_one_line(self, folder: Path) -> None:
        folder.chmod(0o500)
        done = init("--host", "moonshot", "--yes", "--no-check", "--output", "x.toml", cwd=folder)
        folder.chmod(0o700)
        assert (done.code, len(done.lines)) == (1, 1)

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (["--host", "moonshoot"], "--host: expected one of moonshot, kimi,"),
            (["--host", "moonshoot"], "got 'moonshoot' (did you mean 'moonshot'?)"),
            (["--host", "sglan", "--url", "http://x/v1"], "got 'sglan' (did you mean 'sglang'?)"),
            (["--host", "vllm"], "a self-hosted server also needs --url"),
            (["--host", "nowhere", "--url", "http://x/v1"], "--host: with --url, expected one of moonshot,"),
            (["--url", "localhost:8000"], "expected an http:// or https:// URL"),
            (["--key-env", KEY], "expected the name of an environment variable, not the key itself"),
            (["--alias", "claude-*"], "expected NAME=MODEL"),
            (["--output", "moonshim.json"], "its name must end in .toml"),
            (["--from", "ollama", "x"], "TOOL is claude-code-router or litellm"),
            (["--from", "litellm"], "the path of its file is missing"),
            (["--from", "litellm", "x", "--model", "y"], "--model cannot be combined with --from"),
        ],
    )
    def test_a_wrong_flag_is_explained(self, flags: list[str], words: str, folder: Path) -> None:
        done = init(*flags, cwd=folder)
        assert done.code == 2
        assert words in done.stderr
        assert KEY not in done.stderr
