"""Ids: the shape of every host, the same for the same place, and never one twice."""

from __future__ import annotations

import re

import pytest

from moonshim.simulator.host.ids import ID_PROFILES, IdPlace, answer_id, signature

SHAPES = {
    "k2": r"functions\.weather:7",
    "moonshot-k2": r"weather:7",
    "moonshot-k3": r"weather_7",
    "fireworks-k3": r"weather:1",
    "openai": r"call_[0-9a-f]{24}",
    "vllm": r"chatcmpl-tool-[0-9a-f]{32}",
    "anthropic": r"toolu_[0-9a-f]{24}",
    "kimi-anthropic": r"tool_[0-9a-f]{24}",
}
BY_CHANCE = ("openai", "vllm", "anthropic", "kimi-anthropic")


def place(*, answer: str = "chatcmpl-1", position: int = 1) -> IdPlace:
    return IdPlace(name="weather", number=7, position=position, answer_id=answer)


def test_every_profile_has_a_shape_here() -> None:
    assert SHAPES.keys() == ID_PROFILES.keys()


@pytest.mark.parametrize(("profile", "shape"), SHAPES.items(), ids=SHAPES)
def test_an_id_has_the_shape_of_its_host(profile: str, shape: str) -> None:
    assert re.fullmatch(shape, ID_PROFILES[profile](place()))


@pytest.mark.parametrize("profile", BY_CHANCE)
def test_ids_that_look_like_chance_depend_on_the_answer_and_the_position_alone(profile: str) -> None:
    make = ID_PROFILES[profile]
    assert make(place()) == make(place())
    assert len({make(place()), make(place(position=2)), make(place(answer="chatcmpl-2"))}) == 3


def test_two_answers_to_the_same_request_have_ids_of_their_own() -> None:
    assert answer_id("openai_chat", 0, 1, b"{}") != answer_id("openai_chat", 0, 2, b"{}")
    assert answer_id("anthropic", 0, 1, b"{}").startswith("msg_")


def test_a_signature_can_be_read_as_base64url() -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]+={0,2}", signature("msg_1"))
