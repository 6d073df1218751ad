"""A plug-in that raises: the log says where and what, the client reads its name and no path of the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from moonshim import Mender
from moonshim.engine.prepare import Prepared, prepare_request
from moonshim.engine.stages import TransformerFailed
from moonshim.errors import InvalidOption, Refused
from moonshim.transformers import load_chain
from tests.support.streams import chunk, sse

Told = list[tuple[str, str, dict[str, Any]]]
PLUGIN = """\
import json
from moonshim.errors import Refused

class Clumsy:
    def __init__(self, when="never"):
        self.when = when

    def prepare(self, request):
        if self.when == "prepare":
            raise KeyError("the word")
        if self.when == "refuse":
            raise Refused("not on Sundays")
        return request

    def stages(self, plan):
        if self.when == "stages":
            raise OSError("no stage")
        return [Stage(self.when)]

class Stage:
    def __init__(self, when):
        self.when = when

    def feed(self, event):
        if self.when == "feed":
            json.loads("{")
        return [event]

    def flush(self):
        if self.when == "flush":
            raise ValueError("too late")
        return []
"""


class Use(Struct, frozen=True):
    name: str
    options: dict[str, Any] = {}


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "clumsy.py"
    path.write_text(PLUGIN)
    return path


def prepared(plugin: Path, when: str, told: Told) -> Prepared:
    chain = load_chain([Use(f"{plugin}:Clumsy", {"when": when})], log=lambda *said: told.append(said))
    asked = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    return prepare_request(asked, host="moonshot", transformers=chain.transformers)


@pytest.mark.parametrize(
    ("when", "line", "raised"),
    [
        ("prepare", 'raise KeyError("the word")', "KeyError: 'the word'"),
        ("stages", 'raise OSError("no stage")', "OSError: no stage"),
        # The fault shows in a library; the line that led there is the one to mend.
        ("feed", 'json.loads("{")', "JSONDecodeError: Expecting property name enclosed in double quotes"),
        ("flush", 'raise ValueError("too late")', "ValueError: too late"),
    ],
)
def test_the_log_says_where_it_was_and_the_client_reads_only_a_name(
    plugin: Path, when: str, line: str, raised: str
) -> None:
    told: Told = []
    if when in ("prepare", "stages"):
        with pytest.raises(TransformerFailed) as failed:
            prepared(plugin, when, told)
        client = str(failed.value)
    else:
        mender = Mender(plan=prepared(plugin, when, told).plan)
        client = (mender.feed(sse([chunk({"content": "Hi"}), chunk({}, finish="stop")])) + mender.flush()).decode()
    number = next(at for at, text in enumerate(PLUGIN.splitlines(), 1) if line in text)
    ((level, name, fields),) = told
    assert (level, name) == ("error", "transformer_failed")
    assert fields["at"] == f"{plugin}:{number}"
    assert fields["raised"].startswith(raised)
    assert fields["transformer"] == f"{plugin}:Clumsy"
    assert "transformer clumsy.py:Clumsy failed" in client
    assert str(plugin.parent) not in client


def test_a_refusal_on_purpose_is_no_fault(plugin: Path) -> None:
    told: Told = []
    with pytest.raises(Refused, match="not on Sundays"):
        prepared(plugin, "refuse", told)
    assert told == []


ENDINGS = ["SystemExit(3)", "KeyboardInterrupt()", "GeneratorExit()", "asyncio.CancelledError()", "Mute()"]
"""What ends processes and tasks, when it is raised by somebody who may; and an error that cannot say what it is."""
LEAVING = """\
import asyncio

class Mute(BaseException):
    def __str__(self):
        raise SystemExit(4)

def leave(here):
    if "{when}" == here:
        raise {ending}

leave("import")

class Leaving:
    def __init__(self):
        leave("make")

    def __getattr__(self, name):
        leave("look")
        raise AttributeError(name)

    def prepare(self, request):
        leave("prepare")
        return request

    def stages(self, plan):
        leave("stages")
        return [Stage()]

class Stage:
    def feed(self, event):
        leave("feed")
        return [event]

    def flush(self):
        leave("flush")
        return []
"""


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("when", ["import", "make"])
def test_a_plug_in_that_ends_the_process_while_it_is_loaded_cannot_be_used(
    tmp_path: Path, when: str, ending: str
) -> None:
    file = tmp_path / "leaving.py"
    file.write_text(LEAVING.replace("{when}", when).replace("{ending}", ending))
    with pytest.raises(InvalidOption, match=ending.partition("(")[0].rpartition(".")[2]):
        load_chain([Use(f"{file}:Leaving")])


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("when", ["prepare", "stages", "feed", "flush"])
def test_a_plug_in_that_ends_the_process_ends_one_request(tmp_path: Path, when: str, ending: str) -> None:
    file = tmp_path / "leaving.py"
    file.write_text(LEAVING.replace("{when}", when).replace("{ending}", ending))
    told: Told = []
    chain = load_chain([Use(f"{file}:Leaving")], log=lambda *said: told.append(said))
    asked = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    raised = ending.partition("(")[0].rpartition(".")[2]
    try:
        mender = Mender(plan=prepare_request(asked, host="moonshot", transformers=chain.transformers).plan)
        client = (mender.feed(sse([chunk({"content": "Hi"}), chunk({}, finish="stop")])) + mender.flush()).decode()
    except TransformerFailed as failed:
        assert when in ("prepare", "stages")
        client = str(failed)
    assert f"transformer leaving.py:Leaving failed: it raised {raised}" in client
    assert [fields["raised"].partition(":")[0] for _, _, fields in told] == [raised]


def test_a_pipe_is_no_plug_in(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(InvalidOption, match="is not a file"):
        load_chain([Use(f"{tmp_path / 'pipe.py'}:Mine")])
