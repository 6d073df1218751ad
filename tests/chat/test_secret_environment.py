"""Keys in the environment of the chat: no command that a model thinks of gets or finds them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from tests.support.command import MOONSHIM, environment

KEY = "sk-test-0123456789abcdef"
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc")
AS_ORDINARY_USER = """
import ctypes, os, sys
for capability in range(64):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Root looks into other processes by its capabilities. Without them it is a user like others."""


class Commands:
    """A model that runs the command it is asked to."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        if question.round > 1:
            return IntendedResponse(text="That was it.")
        return IntendedResponse(calls=(IntendedCall("bash", json.dumps({"command": question.words})),))


@pytest.fixture(scope="module")
def host() -> Iterator[Simulator]:
    with Simulator(model=Commands(), behaviour="selfhost").running() as server:
        yield server


def output(host: Simulator, folder: Path, command: str, *arguments: str, before: tuple[str, ...] = ()) -> str:
    """What a command prints that the model of a chat runs."""
    to = ("--base-url", f"{host.url}/v1", "--model", "kimi-k2.5", "--key-env", "HOST_CREDS", "--yolo")
    given = environment(
        XDG_DATA_HOME=str(folder / "data"),
        HOST_CREDS=KEY,
        SAME_KEY_AGAIN=f"Bearer {KEY}",
        GH_TOKEN="ghp_fedcba9876543210",
        MOONSHOT_API_KEY="sk-another-0123456789",
        PLAIN="plain-words",
    )
    done = subprocess.run(
        [*before, *MOONSHIM, "chat", *to, *arguments, "-p", command, "--output", "json"],
        env=given,
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (call,) = json.loads(done.stdout)["calls"]
    return str(call["result"])


SECRETS = (KEY, "ghp_fedcba9876543210", "sk-another-0123456789")


def test_commands_get_no_variable_that_holds_a_key(host: Simulator, tmp_path: Path) -> None:
    shown = output(host, tmp_path, "env")
    assert "PLAIN=plain-words" in shown
    assert not [secret for secret in SECRETS if secret in shown]


def test_a_variable_that_is_asked_for_is_handed_down(host: Simulator, tmp_path: Path) -> None:
    shown = output(host, tmp_path, "env", "--pass-env", "GH_TOKEN")
    assert "GH_TOKEN=ghp_fedcba9876543210" in shown
    assert KEY not in shown


@ONLY_LINUX
def test_the_environment_of_the_chat_itself_shows_no_key_even_to_root(host: Simulator, tmp_path: Path) -> None:
    shown = output(host, tmp_path, r"tr '\0' '\n' < /proc/$PPID/environ || echo refused")
    assert not [secret for secret in SECRETS if secret in shown]
    # Root may read it, and then finds the rest as it was.
    assert "PLAIN=plain-words" in shown or "refused" in shown


@ONLY_LINUX
@pytest.mark.parametrize("file", ["environ", "mem", "maps"])
def test_commands_of_an_ordinary_user_cannot_look_into_the_chat(host: Simulator, tmp_path: Path, file: str) -> None:
    before = (sys.executable, "-c", AS_ORDINARY_USER)
    shown = output(host, tmp_path, f"head -c 1 /proc/$PPID/{file} 2>&1 || true", before=before)
    assert "denied" in shown or "not permitted" in shown


@ONLY_LINUX
def test_a_program_with_the_toolbox_keeps_its_variables_and_does_not_show_them(tmp_path: Path) -> None:
    code = """
import asyncio, ctypes, os
from moonshim.agent.toolbox import toolbox

bash = next(tool for tool in toolbox(hidden=["SOME_KEY"]) if tool.name == "bash")
print(asyncio.run(bash("tr '\\\\0' '\\\\n' < /proc/$PPID/environ")))
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print("mine:", os.environ["SOME_KEY"], getenv(b"SOME_KEY"))
"""
    given = environment(SOME_KEY=KEY, PLAIN="plain-words")
    done = subprocess.run([sys.executable, "-c", code], env=given, cwd=tmp_path, capture_output=True, check=True)
    shown, _, mine = done.stdout.decode().partition("mine:")
    assert "PLAIN=plain-words" in shown
    assert KEY not in shown
    assert mine.split() == [KEY, f"b'{KEY}'"]
