"""A request -> the prompt that the model sees, in the grammar of its generation: it shows where a wrong id ends up."""

from __future__ import annotations

from moonshim.simulator.render.k2 import render_k2
from moonshim.simulator.render.k3 import render_k3
from moonshim.simulator.request import SimRequest

__all__ = ["render_prompt"]


def render_prompt(request: SimRequest, *, renamed: bool = False) -> str:
    """The prompt of this request. With `renamed`, the ids of the history are first rewritten to `functions.name:index`.

    K2 and K2-Thinking follow their templates, K3 follows Moonshot's encoder,
    the tools of K2.5 follow its converter. Each module lists what is inferred. Models other than Kimi use a
    template that is not known here; K2's takes its place, so that tokens can be counted.

    Never raises: what a real renderer would refuse is rendered as it is.

    >>> from moonshim.simulator.request import SimTurn
    >>> hello = (SimTurn(role="user", text="Hello"),)
    >>> ask = SimRequest(wire="openai_chat", model="kimi-k2.7-code", generation="k2.7", turns=hello)
    >>> render_prompt(ask)
    '<|im_user|>user<|im_middle|>Hello<|im_end|><|im_assistant|>assistant<|im_middle|><think>'
    """
    return render_k3(request) if request.family == "k3" else render_k2(request, renamed=renamed)
