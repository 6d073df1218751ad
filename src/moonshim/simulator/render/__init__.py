"""A question -> the prompt that the model sees, in the grammar of its generation: where a wrong id becomes visible."""

from __future__ import annotations

from moonshim.simulator.render.k2 import render_k2
from moonshim.simulator.render.k3 import render_k3
from moonshim.simulator.request import SimRequest

__all__ = ["render_prompt"]


def render_prompt(request: SimRequest, *, renamed: bool = False) -> str:
    """The prompt of this question. With `renamed` the ids of the history become `functions.name:index` before.

    What is known is written as it is known: K2 and K2-Thinking after their templates, K3 after Moonshot's encoder,
    the tools of K2.5 after its converter. Inferred is what each module says of itself. A model that is no Kimi has a
    template that nobody here knows; K2's stands in for it, so that its tokens can be counted.

    No question raises: what a real renderer would refuse is shown as it stands.

    >>> from moonshim.simulator.request import SimTurn
    >>> hello = (SimTurn(role="user", text="Hello"),)
    >>> ask = SimRequest(wire="openai_chat", model="kimi-k2.7-code", generation="k2.7", turns=hello)
    >>> render_prompt(ask)
    '<|im_user|>user<|im_middle|>Hello<|im_end|><|im_assistant|>assistant<|im_middle|><think>'
    """
    return render_k3(request) if request.family == "k3" else render_k2(request, renamed=renamed)
