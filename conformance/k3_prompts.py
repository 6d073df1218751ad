"""A request as a template takes it, and K3's prompt for it -> whether ours is the same, byte for byte.

The inputs are in the words of templates, not of an API: `template_kwargs` switch thinking and its effort.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from conformance.checked import Checked
from conformance.replies import Json
from moonshim.simulator.host.parse_request import parse_request
from moonshim.simulator.render import render_prompt

__all__ = ["area_of", "check", "key_of", "read"]


def read(folder: Path) -> list[Json]:
    """The pairs `NAME_input.json` and `NAME_output.txt`."""
    names = sorted(path.name.removesuffix("_output.txt") for path in folder.glob("*_output.txt"))
    return [
        {
            "name": name,
            "input": json.loads((folder / f"{name}_input.json").read_text("utf-8")),
            "output": (folder / f"{name}_output.txt").read_bytes().decode(),
        }
        for name in names
    ]


def key_of(row: Json) -> str:
    name: str = row["name"]
    return name


def area_of(row: Json) -> str:
    return "prompts"


def check(row: Json) -> Checked:
    asked = dict(row["input"])
    switches = asked.pop("template_kwargs", {})
    body = asked | {"model": "kimi-k3", "chat_template_kwargs": switches}
    question = parse_request(body, wire="openai_chat", model="kimi-k3", generation="k3")
    # At Moonshot K3 always thinks; its template can be told not to.
    question = msgspec.structs.replace(question, thinking=switches.get("thinking", True))
    return Checked(render_prompt(question), row["output"])
