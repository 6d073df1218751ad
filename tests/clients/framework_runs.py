"""A framework -> what came of each way to ask and each case, through one gateway before one simulator per case."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from tests.clients.cases import Case
from tests.clients.framework import Framework, Way
from tests.clients.install import FOLDER
from tests.clients.run import OFFLINE, gateway, provider_for

__all__ = ["FILES", "Finder", "Run", "run_framework"]

LIMIT: Final = 60.0
"""For one task."""
LOAD_LIMIT: Final = 180.0
FILES: Final = ("one.txt", "two.txt", "three.txt", "four.txt")
"""Each has a word in it that only the tools can find."""
PROMPT: Final = "Which words are in the files?"
_WORKER: Final = Path(__file__).with_name("frameworks") / "worker.py"
_WORD: Final = re.compile(r"word-[0-9a-f]{12}")


class Run(Struct, frozen=True, kw_only=True):
    """One way to ask in one case."""

    way: Way
    case: Case
    problems: tuple[str, ...]


class Finder:
    """Reads one file, then three at once, then answers with every word that the conversation has.

    It looks at words, not at tool results: smolagents writes its history as text.
    """

    def reply(self, question: SimRequest) -> IntendedResponse:
        said = [turn.text for turn in question.turns]
        said += [result.text for turn in question.turns for result in turn.results]
        words = list(dict.fromkeys(_WORD.findall("\n".join(said))))
        answers = sum(turn.role == "assistant" for turn in question.turns)
        if not answers:
            return IntendedResponse(reasoning="One first.", text="I look.", calls=(_read(question, 0),))
        if len(words) == 1 and answers < 4:
            return IntendedResponse(
                reasoning="The others at once.", calls=tuple(_read(question, at) for at in (1, 2, 3))
            )
        answer = f"The words are {', '.join(words)}."
        if ending := _named(question, "final_answer"):
            return IntendedResponse(
                reasoning="Done.", calls=(IntendedCall(ending, msgspec.json.encode({"answer": answer}).decode()),)
            )
        return IntendedResponse(reasoning="Done.", text=answer)


def _read(question: SimRequest, at: int) -> IntendedCall:
    """Both tools take turns."""
    tool, arguments = ("read_file", {"path": FILES[at]}) if at % 2 else ("bash", {"command": f"cat {FILES[at]}"})
    return IntendedCall(_named(question, tool) or tool, msgspec.json.encode(arguments).decode())


def _named(question: SimRequest, name: str) -> str | None:
    """Semantic Kernel puts the name of a plug-in before that of a tool."""
    return next((tool.name for tool in question.tools if tool.name.endswith(name)), None)


def run_framework(framework: Framework, python: Path, cases: Sequence[Case], ways: Sequence[Way]) -> Iterator[Run]:
    folder = FOLDER / "runs" / framework.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "home").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        boxes = {case.name: Simulator(behaviour=case.behaviour, faults=case.faults, model=Finder()) for case in cases}
        for server in boxes.values():
            stack.enter_context(server.running())
        providers = [provider_for(case, boxes[case.name].url) for case in cases]
        aliases = {_alias(case): f"{case.name}/{case.model}" for case in cases}
        url = stack.enter_context(gateway({"providers": providers, "aliases": aliases}, folder))
        worker = stack.enter_context(contextlib.closing(_Worker(framework, python, folder)))
        for way in ways:
            for case in cases:
                if (way, case.name) in framework.unable:
                    continue
                server = boxes[case.name]
                server.requests.clear()
                problems = _problems(worker, way, case, server, url, folder / f"{way.dialect}-{way.mode}-{case.name}")
                yield Run(way=way, case=case, problems=tuple(problems))


def _alias(case: Case) -> str:
    return f"{case.model}-{case.name}"


def _problems(worker: _Worker, way: Way, case: Case, server: Simulator, url: str, folder: Path) -> Iterator[str]:
    folder.mkdir()
    words = [f"word-{secrets.token_hex(6)}" for _ in FILES]
    for name, word in zip(FILES, words, strict=True):
        (folder / name).write_text(f"{word}\n")
    task = {"dialect": way.dialect, "streamed": way.mode == "streamed", "url": url, "model": _alias(case)}
    result = worker.ask({**task, "prompt": PROMPT, "folder": str(folder)})
    bodies = [seen.body for seen in server.requests]
    (folder / "requests.json").write_bytes(msgspec.json.format(msgspec.json.encode(bodies)))
    answer = result.get("answer", "")
    if "error" in result:
        yield result["error"][:300]
    elif lost := sum(word not in answer for word in words):
        yield f"{lost} of {len(words)} results are missing from the answer: {answer[:80]!r}"
    if "<|" in answer:
        yield f"a marker reached the user: {answer[:200]!r}"
    ran = (folder / "ran.txt").read_text().splitlines() if (folder / "ran.txt").exists() else []
    if sorted(call.removeprefix("cat ") for call in ran) != sorted(FILES):
        yield f"unexpected tool runs: {ran}"
    if server.refusals:
        yield f"{len(server.refusals)} of {len(server.requests)} requests refused: {server.refusals[0].problem}"


class _Worker:
    """The framework in a process of its own, started again if a task takes too long."""

    def __init__(self, framework: Framework, python: Path, folder: Path) -> None:
        self._command = [str(python), str(_WORKER), framework.name.replace("-", "_")]
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def ask(self, task: dict[str, object]) -> dict[str, str]:
        if self._process is None and "error" in (loaded := self._start()):
            return loaded
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(task).decode() + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # what it printed last says why
        return self._answer(LIMIT)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> dict[str, str]:
        environment = {
            "PATH": os.pathsep.join(["/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(self._folder / "home"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **OFFLINE,
        }
        with (self._folder / "stderr").open("ab") as complained:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complained,
                text=True,
            )
        return self._answer(LOAD_LIMIT)

    def _answer(self, limit: float) -> dict[str, str]:
        assert self._process is not None
        assert self._process.stdout is not None
        began = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(limit) else ""
        if line:
            return msgspec.json.decode(line, type=dict[str, str])
        self.close()
        if time.monotonic() - began >= limit:
            return {"error": f"timed out after {limit:.0f} s"}
        last = [line for line in (self._folder / "stderr").read_text(errors="replace").splitlines() if line.strip()]
        return {"error": f"exited: {last[-1] if last else ''}"}
