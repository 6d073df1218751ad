"""A client -> what is wrong when it is launched: once, in a terminal, and when somebody kills it in the middle."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from moonshim.simulator.http.recorded import RecordedRequest
from tests.clients.built_in.feature import Scene
from tests.clients.built_in.judged import AGENT, JUDGE, JUDGED_PROMPT, Judged, prepare_judged, ran_as_judged
from tests.clients.cases import Case
from tests.clients.launch.launched import Launched
from tests.clients.launch.notes_server import TOOL
from tests.clients.launch.place import RAN, STARTED, WORD_FILE, LaunchPlace
from tests.clients.launch.terminal import Terminal
from tests.clients.own_check import SUSPICIOUS, stages_of, verdict

__all__ = ["LAUNCH_CASES", "LaunchCase", "LaunchOutcome", "run_launch"]

SMALL: Final = "kimi-k3.1-pro"
PROMPT: Final = "Which word is in the file?"
LEAKING: Final = Case(
    name="once", model="kimi-k2.5", behaviour="selfhost", faults=("markers-in-content", "split-bytes")
)
DOUBLING: Final = Case(
    name="doubled", model="kimi-k2.5", behaviour="vllm", host="vllm", faults=("arguments-twice", "split-bytes")
)
LEAKING_K3: Final = Case(
    name="k3", model="kimi-k3", behaviour="sglang", host="sglang", faults=("xtml-in-content", "split-bytes")
)
OWN_CHECK: Final = Case(name="auto-mode", model="kimi-k3", behaviour="moonshot", host="moonshot")
_THINKS: Final = 300
"""Tokens, more than the check of Claude Code allows for a verdict."""
_MARKERS: Final = ("<|tool", "<|open|>", "<|close|>", "<|sep|>")
LISTED: Final = ("kimi-k2.5", "kimi-k2.6")
"""Models of the demo that a client's list must have."""
DEMO_MODEL: Final = "kimi-k2.5+markers-in-content"
_HOLD: Final = 300
_CHECK: Final = 16
"""The launcher's own request, before the client starts, asks for so many tokens."""
GRACE: Final = 15.0


class LaunchOutcome(Struct, frozen=True, kw_only=True):
    """How a run ended. No problems: the client worked, and the user's settings are untouched."""

    problems: tuple[str, ...]
    seen: str
    seconds: float


class LaunchCase(Struct, frozen=True, kw_only=True):
    """One way to launch a client and to end it."""

    name: str
    about: str
    run: Callable[[LaunchPlace], Iterator[str]]
    only: str = ""
    """The client that has such a thing; empty: all."""

    def fits(self, client: Launched) -> bool:
        return self.only in ("", client.name)


class _Checked:
    """Runs two commands that Claude Code checks in auto mode, and says what the first one printed."""

    def __init__(self, client: Launched, word: str) -> None:
        self._shell, self._word = client.shell, word
        self._commands = (
            f"python3 -c 'print(open(\"{WORD_FILE}\").read())' && echo ran >> {RAN}",
            f"{SUSPICIOUS} --quiet new && echo ran >> {RAN}",
        )

    def reply(self, question: SimRequest) -> IntendedResponse:
        if (judged := verdict(question)) is not None:
            return judged
        done = sum(turn.role == "assistant" and bool(turn.calls) for turn in question.turns)
        if not question.tools or done == len(self._commands):
            return IntendedResponse(reasoning="There it is.", text=f"It is {self._word}.")
        assert self._shell is not None
        arguments = msgspec.json.encode(self._shell.arguments(self._commands[done])).decode()
        return IntendedResponse(reasoning="I look.", calls=(IntendedCall(self._shell.tool, arguments),))


class _Model:
    """Looks into the file with the client's shell, then says what it found. With `hold`, the command does not end."""

    def __init__(self, client: Launched, word: str, *, hold: bool) -> None:
        self._shell, self._word = client.shell, word
        look = f"cat {WORD_FILE} && echo ran >> {RAN}"
        self._command = f"touch {STARTED} && sleep {_HOLD}" if hold else look

    def reply(self, question: SimRequest) -> IntendedResponse:
        results = [result.text for turn in question.turns for result in turn.results]
        if self._shell is None:
            return IntendedResponse(reasoning="I know it.", text=f"It is {self._word}.")
        if not question.tools:
            return IntendedResponse(text="A word in a file")
        if results:
            return IntendedResponse(reasoning="There it is.", text=f"It is {self._word}, says: {results[-1][:200]}")
        arguments = msgspec.json.encode(self._shell.arguments(self._command)).decode()
        return IntendedResponse(reasoning="I look.", calls=(IntendedCall(self._shell.tool, arguments),))


def run_launch(client: Launched, case: LaunchCase, programs: str) -> LaunchOutcome:
    """`programs`: the PATH with the client on it."""
    place = LaunchPlace(client, case.name, programs)
    begun = time.monotonic()
    try:
        problems = list(case.run(place))
    except TimeoutError as error:
        problems = [str(error)]
    finally:
        place.end_all()
    problems += place.changed()
    return LaunchOutcome(problems=tuple(problems), seen=case.about, seconds=time.monotonic() - begun)


@contextlib.contextmanager
def _launched(place: LaunchPlace, host: Case, *, hold: bool = False) -> Iterator[tuple[Terminal, Simulator]]:
    """The client answers one prompt, before a host that misbehaves."""
    client = place.client
    server = Simulator(behaviour=host.behaviour, faults=host.faults, model=_Model(client, place.word, hold=hold))
    with server.running():
        config = place.config(server.url.replace("127.0.0.1", "localhost"), host, (host.model, SMALL))
        options = ("--config", str(config), "--model", host.model, "--small-model", SMALL)
        prompt = PROMPT
        if hold and client.shell is None:
            prompt = f"/run touch {STARTED} && sleep {_HOLD}"
        command = place.command(*options, arguments=client.once(prompt))
        (place.folder / "command").write_text(shlex.join(command))
        with Terminal(command, place.work, place.environment) as terminal:
            try:
                yield terminal, server
            finally:
                (place.folder / "screen.txt").write_text(terminal.text)
                (place.folder / "raw.txt").write_text(terminal.raw)
                bodies = [seen.body for seen in server.requests]
                (place.folder / "requests.json").write_bytes(msgspec.json.format(msgspec.json.encode(bodies)))


# -- cases ------------------------------------------------------------------------------------------------------------


def _once(host: Case) -> Callable[[LaunchPlace], Iterator[str]]:
    def run(place: LaunchPlace) -> Iterator[str]:
        with _launched(place, host) as (terminal, server):
            code = terminal.ends()
            requests = list(server.requests)
        if code:
            yield f"it ended with code {code}: {terminal.text.strip()[-400:]}"
        if place.word not in terminal.raw:
            yield f"the word is missing: {terminal.text.strip()[-400:]}"
        yield from _leaked(place, terminal)
        if place.client.shell is not None and not any(host.faults[0] in seen.faults for seen in requests):
            yield f"the host never played {host.faults[0]}"
        yield from _asked(place, host.model, requests)
        yield from place.left()

    return run


def _leaked(place: LaunchPlace, terminal: Terminal) -> Iterator[str]:
    if any(marker in terminal.raw for marker in _MARKERS):
        yield "markers reached the user"
    yield from (f"the user saw {text!r}" for text in place.client.unwanted if text in terminal.text)


def _asked(place: LaunchPlace, model: str, requests: list[RecordedRequest]) -> Iterator[str]:
    client = place.client
    refused = [seen.problem for seen in requests if seen.problem is not None]
    if refused:
        yield f"the host refused {len(refused)} of {len(requests)} requests: {refused[0]}"
    models = {seen.request.model for seen in requests if seen.request is not None}
    if model not in models or not models <= {model, SMALL}:
        yield f"it asked for {', '.join(sorted(models)) or 'nothing'}"
    keyed = [seen for seen in requests if "prompt_cache_key" in seen.body or seen.body.get("max_tokens") == _CHECK]
    if client.has_cache_key and len(keyed) != len(requests):
        yield f"{len(requests) - len(keyed)} of {len(requests)} requests have no cache key"
    if client.shell is not None and place.ran() != 1:
        yield f"the tool ran {place.ran()} times"
    # Some clients name such tools in the prompt and declare them when the model asks for them.
    if client.has_mcp and not any(TOOL in msgspec.json.encode(seen.body).decode() for seen in requests):
        yield "the user's MCP server is missing"


def _in_terminal(place: LaunchPlace) -> Iterator[str]:
    """As a person uses it, on the demo."""
    client = place.client
    command = place.command("--demo", "--model", DEMO_MODEL, arguments=client.arguments)
    with Terminal(command, place.work, place.environment) as terminal:
        try:
            wanted = "Here is what came back" if client.shell is not None else "This is Moonshim's simulator"
            yield from _typed(place, terminal, wanted)
        finally:
            (place.folder / "screen.txt").write_text(terminal.text)
            (place.folder / "raw.txt").write_text(terminal.raw)
    yield from place.left()


def _typed(place: LaunchPlace, terminal: Terminal, wanted: str) -> Iterator[str]:
    client, pending = place.client, dict(place.client.answers)

    def is_ready() -> bool:
        for question, keys in list(pending.items()):
            if question in terminal.shown:
                del pending[question]
                terminal.type(keys)
        return any(line.strip().startswith(client.ready) for line in terminal.shown.splitlines())

    terminal.until(is_ready, "prompt")
    _rest(terminal)
    prompt = f"Read {WORD_FILE}"
    terminal.type(prompt)
    terminal.until(lambda: prompt in terminal.shown, "echo of what was typed")
    _rest(terminal, 0.5)  # at once after other keys, Enter is part of a pasted text
    terminal.type("\r")
    terminal.until(lambda: wanted in terminal.text, "answer")
    yield from place.exposed()
    _rest(terminal)
    if client.picker:
        terminal.type(client.picker)
        _rest(terminal, 0.5)
        terminal.type("\r")
        terminal.until(lambda: all(model in terminal.shown for model in LISTED), "list of models")
        terminal.type("\x1b")
        _rest(terminal, 0.5)
    for keys in client.quit:
        terminal.type(keys)
        _rest(terminal, 0.5)
    code = terminal.ends(30)
    if code:
        yield f"it ended with code {code}"
    yield from _leaked(place, terminal)


def _in_auto_mode(place: LaunchPlace) -> Iterator[str]:
    """Claude Code in its default mode, with a judge: what is allowed runs, what is flagged does not."""
    client, scene = place.client, Scene(work=place.work, word=place.word)
    prepare_judged(scene)
    host = Case(name="judge", model=AGENT, behaviour="selfhost")
    server = Simulator(behaviour=host.behaviour, model=Judged(scene))
    with server.running():
        config = place.config(server.url.replace("127.0.0.1", "localhost"), host, (AGENT, JUDGE))
        command = place.command("--config", str(config), "--model", AGENT, "--judge", JUDGE)
        with Terminal(command, place.work, place.environment) as terminal:
            try:
                terminal.until(lambda: "auto mode on" in terminal.shown, "auto mode")
                _rest(terminal)
                _enter(terminal, JUDGED_PROMPT)
                terminal.until(lambda: f"I read: {place.word}" in terminal.text, "answer")
                _enter(terminal, "/status")
                terminal.until(lambda: "Auto mode server:" in terminal.shown, "line about auto mode in /status")
                shown = next(line for line in terminal.shown.splitlines() if "Auto mode server:" in line)
                if "Enabled" not in shown:
                    yield f"the server does not check: {shown.strip()}"
                terminal.type("\x1b")
                _rest(terminal)
                for keys in client.quit:
                    terminal.type(keys)
                    _rest(terminal, 0.5)
                if code := terminal.ends(30):
                    yield f"it ended with code {code}"
            finally:
                (place.folder / "screen.txt").write_text(terminal.text)
    yield from ran_as_judged(scene)
    if "Auto mode: It contains 'rm -rf'" not in terminal.text:
        yield "the user did not see what was refused, and why"
    yield from place.left()


def _enter(terminal: Terminal, text: str) -> None:
    terminal.type(text)
    terminal.until(lambda: text in terminal.shown, "echo of what was typed")
    _rest(terminal, 0.5)  # at once after other keys, Enter is part of a pasted text
    terminal.type("\r")


def _rest(terminal: Terminal, seconds: float = 1.5) -> None:
    """Until nothing new was drawn for that long; clients draw several times before they read keys."""
    before, since = "", time.monotonic()
    deadline = since + 20
    while time.monotonic() - since < seconds and time.monotonic() < deadline:
        terminal.read(0.1)
        if terminal.shown != before:
            before, since = terminal.shown, time.monotonic()


def _auto_mode(place: LaunchPlace) -> Iterator[str]:
    """In the mode in which Claude Code starts, on a K3 that thinks: nobody is asked, and the session can be resumed."""
    client, host = place.client, OWN_CHECK
    server = Simulator(behaviour=host.behaviour, model=_Checked(client, place.word), thinking_tokens=_THINKS)
    with server.running():
        config = place.config(server.url.replace("127.0.0.1", "localhost"), host, (SMALL, host.model))
        options = ("--config", str(config), "--model", host.model, "--small-model", SMALL)
        with Terminal(place.command(*options), place.work, place.environment) as terminal:
            try:
                yield from _typed(place, terminal, f"It is {place.word}")
            finally:
                (place.folder / "screen.txt").write_text(terminal.text)
        if stages_of(list(server.requests)) != [1, 1, 2]:
            yield f"the client asked for the stages {stages_of(list(server.requests))}"
        if place.ran() != 2:
            yield f"{place.ran()} of 2 commands ran"
        hint = re.search(r"moonshim launch claude .*-- --resume (\S+)", "".join(terminal.text.splitlines()))
        if hint is None:
            yield f"it does not say how to resume the session: {terminal.text.strip()[-600:]}"
            return
        again = place.command(*options, arguments=("--resume", hint[1], "-p", "Which word was it?"))
        done = subprocess.run(
            again, cwd=place.work, env=place.environment, capture_output=True, text=True, check=False, timeout=60
        )
        if place.word not in done.stdout:
            yield f"the session was not resumed: {done.stdout[-200:]} {done.stderr[-200:]}"
    yield from place.left()


def _killed(whom: str, number: signal.Signals) -> Callable[[LaunchPlace], Iterator[str]]:
    def run(place: LaunchPlace) -> Iterator[str]:
        with _launched(place, LEAKING, hold=True) as (terminal, _):
            terminal.until((place.work / STARTED).exists, "command that runs")
            yield from place.exposed()
            pid = terminal.pid if whom == "launcher" else _client_of(place, terminal.pid)
            os.kill(pid, number)
            terminal.until(lambda: not terminal.child.isalive(), "end of the launcher", GRACE + 10)
        yield from _settled(place)

    return run


def _client_of(place: LaunchPlace, launcher: int) -> int:
    """The launcher's child that is not the gateway."""
    children = [one.pid for one in place.processes() if _parent_of(one.pid) == launcher and not one.is_gateway]
    if len(children) != 1:
        raise TimeoutError(f"the launcher has {len(children)} clients")
    return children[0]


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _settled(place: LaunchPlace) -> Iterator[str]:
    """The gateway ends by itself. The files of a launcher that was killed are removed by the next launch."""
    end = time.monotonic() + GRACE
    while any(one.is_gateway for one in place.processes()) and time.monotonic() < end:
        time.sleep(0.1)
    command = place.command("--demo", "--print-env")
    again = subprocess.run(
        command, cwd=place.work, env=place.environment, capture_output=True, text=True, check=False, timeout=60
    )
    if again.returncode:
        yield f"the next launch failed: {again.stderr[-300:]}"
    yield from place.left()


LAUNCH_CASES: Final = (
    LaunchCase(name="once", about="one prompt, a host that leaks markers", run=_once(LEAKING)),
    LaunchCase(name="doubled", about="one prompt, a host that sends arguments twice", run=_once(DOUBLING)),
    LaunchCase(name="k3", about="one prompt, a host that leaks the markers of K3", run=_once(LEAKING_K3)),
    LaunchCase(name="terminal", about="typed into its own interface, --demo", run=_in_terminal),
    LaunchCase(name="auto-mode", about="its own checks in the mode that it starts in", run=_auto_mode, only="claude"),
    LaunchCase(name="judge", about="auto mode with a judge, in a terminal", run=_in_auto_mode, only="claude"),
    LaunchCase(name="launcher-killed", about="SIGKILL for the launcher", run=_killed("launcher", signal.SIGKILL)),
    LaunchCase(name="launcher-ended", about="SIGTERM for the launcher", run=_killed("launcher", signal.SIGTERM)),
    LaunchCase(name="client-killed", about="SIGKILL for the client", run=_killed("client", signal.SIGKILL)),
)
