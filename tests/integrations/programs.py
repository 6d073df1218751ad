"""Programs that drop what the model thought: the loop of an agent, by the openai package, for a client of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import openai

from moonshim.integrations import openai_http_client
from moonshim.simulator import Simulator
from tests.integrations.judging import five_rounds

__all__ = ["HTTP", "KEY", "TOOLS", "answer", "asking", "asking_host", "talk"]

HTTP: Final[Any] = import_module(
    next(one for one in ("httpx2", "httpx") if one in str(openai.DefaultHttpxClient.__mro__))
)
"""The library that the package is built on."""
KEY: Final = "sk-a-key-of-this-test"
_CITY: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Final[Any] = [{"type": "function", "function": {"name": name, "parameters": _CITY}} for name in ("sun", "rain")]


@contextmanager
def asking(behaviour: str, faults: tuple[str, ...] = (), **given: Any) -> Iterator[tuple[Simulator, openai.OpenAI]]:
    """A simulated host, and the package before it; `given` is for the HTTP client."""
    given = {"host": None if behaviour == "selfhost" else behaviour, **given}
    with five_rounds(behaviour, faults).running() as server:
        http_client = openai_http_client(**given)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, http_client=http_client) as client:
            yield server, client


@contextmanager
def asking_host(host: Callable[[Any], Any], *, retries: int = 0, **given: Any) -> Iterator[openai.OpenAI]:
    """The package before a host that is a function: request -> response, of the package's own library."""
    http_client = openai_http_client(transport=HTTP.MockTransport(host), **given)
    url = "https://api.moonshot.ai/v1"
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=retries, http_client=http_client) as client:
        yield client


def answer(message: Any) -> list[Any]:
    """What such a program keeps of a message, its text and its calls and nothing else, and the results."""
    calls = [{"id": call.id, "type": "function", "function": call.function} for call in message.tool_calls or ()]
    turn = {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "often"} for call in calls]
    return [turn, *results]


def talk(client: openai.OpenAI, words: str, *, model: str = "kimi-k2.5", stream: bool = False) -> str:
    """Ask, run the tools, and ask again until there is an answer."""
    messages: list[Any] = [{"role": "user", "content": words}]
    while True:
        if stream:
            with client.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0].message
        if not message.tool_calls:
            return str(message.content)
        messages += answer(message)
