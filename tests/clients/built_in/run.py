"""A feature of a client -> what came of it: simulator, gateway and client, each started for this run alone."""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path

import msgspec
from msgspec.structs import replace

from moonshim.simulator import Simulator
from tests.clients.built_in.feature import BuiltIn, Run, Scene
from tests.clients.client import Place
from tests.clients.install import FOLDER, Node
from tests.clients.judging import Outcome, answer_of, noticed_by_the_user, refused_by_the_host, summary
from tests.clients.run import LIMIT, drive, gateway, log_lines, provider_for

__all__ = ["run_built_in"]


def run_built_in(built_in: BuiltIn, node: Node, installed: Path) -> Outcome:
    feature = built_in.feature
    folder = FOLDER / "runs" / re.sub(r"\W+", "-", f"{built_in.name} {feature.name}".lower())
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("home", "work", "tmp"):
        (folder / name).mkdir(parents=True)
    scene = Scene(work=folder / "work", word=f"word-{secrets.token_hex(6)}")
    client = replace(
        built_in.client,
        command=lambda place: built_in.command(scene, place),
        answer=built_in.answer or built_in.client.answer,
    )
    feature.prepare(scene)
    host = feature.host
    server = Simulator(
        behaviour=host.behaviour,
        faults=host.faults,
        model=feature.model(scene),
        thinking_tokens=feature.thinking_tokens,
    )
    with server.running():
        config = {"providers": [provider_for(host, server.url) | feature.provider], **feature.config(scene)}
        with gateway(config, folder) as url:
            place = Place(
                installed=installed,
                home=folder / "home",
                work=scene.work,
                url=url,
                model=host.model,
                prompt=feature.prompt.format(word=scene.word),
            )
            ended = drive(client, place, node, folder, LIMIT)
        requests = list(server.requests)
    (folder / "requests.json").write_bytes(msgspec.json.format(msgspec.json.encode([seen.body for seen in requests])))
    lines = log_lines(folder / "gateway.log")
    words = (scene.word,) if feature.has_word else ()
    problems = [*noticed_by_the_user(client, ended, words), *refused_by_the_host(requests)]
    answer = answer_of(client, ended)
    problems += feature.judge(Run(scene=scene, ended=ended, answer=answer, requests=requests, lines=lines))
    return Outcome(problems=tuple(problems), seen=f"{feature.about}; {summary(requests, lines)}", seconds=ended.seconds)
