"""The official openai and anthropic packages -> one conversation in each dialect, requested in every way they have.

A conversation stores its history as users of its package do: what came back is sent back, as the package returns it.
`drops`: keep only text and calls, and drop reasoning.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from anthropic import AsyncAnthropic
from anthropic import DefaultAsyncHttpxClient as AnthropicHttp
from msgspec import Struct
from openai import AsyncOpenAI
from openai import DefaultAsyncHttpxClient as OpenAIHttp
from openai.lib.streaming.chat import ChatCompletionStreamState

from tests.support.playing import Call

__all__ = ["WAYS", "Answered", "Conversation", "Packages", "Result"]

Json: TypeAlias = dict[str, Any]

WAYS: Final = ("whole", "events", "helper")
"""Non-streaming; the raw events of a stream; the package's own helper for streams."""


class Result(Struct, frozen=True):
    """A tool's result."""

    text: str
    image: str | None = None
    """PNG, in base64."""
    failed: bool = False


class Answered(Struct, frozen=True):
    """One response, as a user of the package sees it."""

    model: str
    reasoning: str
    text: str
    calls: list[Call]
    reason: str | None
    usage: tuple[int, int] | None
    """Input and output tokens."""
    id: str = ""


class Packages:
    """Both packages, on pooled connections; `headers` are those of the last response."""

    def __init__(self, url: str, *, key: str = "none", agent: str | None = None, timeout: float = 600) -> None:
        """`agent`: the User-Agent, if the package's own will not do."""
        self.headers: Any = {}
        self.answering: Callable[[], None] = lambda: None
        """Called when the headers of a response have arrived."""
        hooks: Any = {"response": [self._note]}
        given: Any = {"api_key": key, "max_retries": 0, "timeout": timeout}
        given["default_headers"] = {"user-agent": agent} if agent else None
        self.openai = AsyncOpenAI(base_url=f"{url}/v1", http_client=OpenAIHttp(event_hooks=hooks), **given)
        self.anthropic = AsyncAnthropic(base_url=url, http_client=AnthropicHttp(event_hooks=hooks), **given)

    async def _note(self, response: Any) -> None:
        self.headers = response.headers
        self.answering()

    async def close(self) -> None:
        await self.openai.close()
        await self.anthropic.close()

    def conversation(self, dialect: str, model: str, **given: Any) -> Conversation:
        return _CONVERSATIONS[dialect](self, model, **given)


class Conversation(ABC):
    """A history in the dialect of its package. `turn` calls the model; `ask` and `give` add the next message."""

    def __init__(
        self,
        packages: Packages,
        model: str,
        *,
        way: str = "whole",
        tools: dict[str, Json] | None = None,
        drops: bool = False,
        **more: Any,
    ) -> None:
        self.packages, self.model, self.way, self.drops, self.more = packages, model, way, drops, more
        self.tools = tools or {}
        self.history: list[Any] = []
        self.is_signed = True
        """Whether reasoning must be signed, as the gateway signs it."""

    @abstractmethod
    def ask(self, text: str, image: str | None = None) -> None: ...

    @abstractmethod
    def give(self, results: list[tuple[Call, Result]]) -> None: ...

    @abstractmethod
    async def turn(self) -> Answered: ...


def _url(image: str) -> str:
    return f"data:image/png;base64,{image}"


# --- Chat -------------------------------------------------------------------------------------------------------


class _Chat(Conversation):
    def ask(self, text: str, image: str | None = None) -> None:
        content: Any = text
        if image is not None:
            content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": _url(image)}}]
        self.history.append({"role": "user", "content": content})

    def give(self, results: list[tuple[Call, Result]]) -> None:
        for call, result in results:
            # Chat has no field for a failure, and only this way for an image in a result.
            content: Any = result.text
            if result.image is not None:
                content = [
                    {"type": "text", "text": result.text},
                    {"type": "image_url", "image_url": {"url": _url(result.image)}},
                ]
            self.history.append({"role": "tool", "tool_call_id": call.id, "content": content})

    async def turn(self) -> Answered:
        completion = await self._completion()
        (choice,) = completion.choices
        message = choice.message
        calls = [Call(one.id, one.function.name, one.function.arguments) for one in message.tool_calls or ()]
        given = message.to_dict(mode="json")
        if self.drops:
            self.history.append({key: given[key] for key in ("role", "content", "tool_calls") if key in given})
        else:
            self.history.append(_without_parsed(given))
        usage = completion.usage
        return Answered(
            completion.model,
            _reasoning_of(given),
            message.content or "",
            calls,
            choice.finish_reason,
            (usage.prompt_tokens, usage.completion_tokens) if usage is not None else None,
            completion.id,
        )

    async def _completion(self) -> Any:
        create: Any = self.packages.openai.chat.completions
        strict = self.way == "helper"  # the helper accepts no others
        tools: Any = [
            {"type": "function", "function": {"name": name, "parameters": schema, "strict": strict}}
            for name, schema in self.tools.items()
        ]
        given: Json = {"model": self.model, "messages": list(self.history), **self.more}
        given |= {"tools": tools} if tools else {}
        if self.way == "whole":
            return await create.create(**given)
        given["stream_options"] = {"include_usage": True}
        if self.way == "helper":
            async with create.stream(**given) as stream:
                return await stream.get_final_completion()
        state: Any = ChatCompletionStreamState(input_tools=tools)
        async for chunk in await create.create(stream=True, **given):
            state.handle_chunk(chunk)
        return state.current_completion_snapshot


def _reasoning_of(message: Json) -> str:
    """In whichever field the host sends it."""
    details = message.get("reasoning_details") or ()
    listed = "".join(part.get("text") or part.get("summary") or "" for part in details)
    return message.get("reasoning_content") or message.get("reasoning") or listed


def _without_parsed(message: Json) -> Json:
    """What the package's helper adds for its users is removed again before it is sent, as its documentation says."""
    message.pop("parsed", None)
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return message


# --- Messages ---------------------------------------------------------------------------------------------------


class _Messages(Conversation):
    def ask(self, text: str, image: str | None = None) -> None:
        content: list[Json] = [{"type": "text", "text": text}]
        if image is not None:
            content.append(_block(image))
        self.history.append({"role": "user", "content": content})

    def give(self, results: list[tuple[Call, Result]]) -> None:
        blocks = []
        for call, result in results:
            block: Json = {"type": "tool_result", "tool_use_id": call.id, "content": result.text}
            if result.image is not None:
                block["content"] = [{"type": "text", "text": result.text}, _block(result.image)]
            if result.failed:
                block["is_error"] = True
            blocks.append(block)
        self.history.append({"role": "user", "content": blocks})

    async def turn(self) -> Answered:
        message = await self._message()
        kinds = ("text", "tool_use") if self.drops else ("text", "tool_use", "thinking", "redacted_thinking")
        kept = [block.to_dict(mode="json") for block in message.content if block.type in kinds]
        self.history.append({"role": "assistant", "content": kept})
        for block in message.content:
            assert not self.is_signed or block.type != "thinking" or block.signature, "thinking is always signed"
        return Answered(
            message.model,
            "".join(block.thinking for block in message.content if block.type == "thinking"),
            "".join(block.text for block in message.content if block.type == "text"),
            [
                Call(block.id, block.name, json.dumps(block.input))
                for block in message.content
                if block.type == "tool_use"
            ],
            message.stop_reason,
            (message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0), message.usage.output_tokens),
            message.id,
        )

    async def _message(self) -> Any:
        messages: Any = self.packages.anthropic.messages
        given: Json = {"model": self.model, "max_tokens": 999, "messages": list(self.history), **self.more}
        given |= {"tools": [{"name": name, "input_schema": schema} for name, schema in self.tools.items()]}
        if self.way == "whole":
            return await messages.create(**given)
        if self.way == "helper":
            async with messages.stream(**given) as stream:
                return await stream.get_final_message()
        return await _put_together(await messages.create(stream=True, **given))


async def _put_together(events: Any) -> Any:
    """As a user of the raw events does it, who trusts every one of them."""
    message: Any = None
    texts: dict[int, str] = {}
    stopped: dict[int, str] = {}
    async for event in events:
        if event.type == "message_start":
            assert message is None
            message = event.message
        elif event.type == "content_block_start":
            assert event.index == len(message.content)
            message.content.append(event.content_block)
        elif event.type == "content_block_delta":
            block, delta = message.content[event.index], event.delta
            match delta.type:
                case "text_delta":
                    block.text += delta.text
                case "thinking_delta":
                    block.thinking += delta.thinking
                case "signature_delta":
                    block.signature = delta.signature
                case "input_json_delta":
                    texts[event.index] = texts.get(event.index, "") + delta.partial_json
        elif event.type == "content_block_stop" and event.index in texts:
            stopped[event.index] = texts[event.index] or "{}"
        elif event.type == "message_delta":
            message.stop_reason = event.delta.stop_reason
            message.usage.output_tokens = event.usage.output_tokens
            if event.usage.input_tokens is not None:
                message.usage.input_tokens = event.usage.input_tokens
                message.usage.cache_read_input_tokens = event.usage.cache_read_input_tokens
    if message.stop_reason != "max_tokens":  # truncated arguments must not be parsed
        for index, text in stopped.items():
            message.content[index].input = json.loads(text)
    return message


def _block(image: str) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}}


# --- Responses --------------------------------------------------------------------------------------------------


class _Responses(Conversation):
    """`kept`: the gateway stores the history, and only new items are sent."""

    def __init__(self, packages: Packages, model: str, *, kept: bool = False, **given: Any) -> None:
        super().__init__(packages, model, **given)
        self._kept = kept
        self.previous: str | None = None

    def ask(self, text: str, image: str | None = None) -> None:
        content: list[Json] = [{"type": "input_text", "text": text}]
        if image is not None:
            content.append({"type": "input_image", "image_url": _url(image), "detail": "auto"})
        self.history.append({"role": "user", "content": content})

    def give(self, results: list[tuple[Call, Result]]) -> None:
        for call, result in results:
            output: Any = result.text
            if result.image is not None:
                output = [
                    {"type": "input_text", "text": result.text},
                    {"type": "input_image", "image_url": _url(result.image), "detail": "auto"},
                ]
            self.history.append({"type": "function_call_output", "call_id": call.id, "output": output})

    async def turn(self) -> Answered:
        response = await self._response()
        items = [item.to_dict(mode="json") for item in response.output]
        for item in items:
            for part in item.get("content") or ():
                part.pop("parsed", None)
            item.pop("parsed_arguments", None)
        if self._kept:
            self.history, self.previous = [], response.id
        else:
            self.history += [item for item in items if not (self.drops and item["type"] == "reasoning")]
        thought = [part["text"] for item in items if item["type"] == "reasoning" for part in item["summary"]]
        calls = [
            Call(item["call_id"], item["name"], item["arguments"]) for item in items if item["type"] == "function_call"
        ]
        usage = response.usage
        return Answered(
            response.model,
            "".join(thought),
            response.output_text,
            calls,
            response.incomplete_details.reason if response.incomplete_details is not None else response.status,
            (usage.input_tokens, usage.output_tokens) if usage is not None else None,
            response.id,
        )

    async def _response(self) -> Any:
        responses: Any = self.packages.openai.responses
        strict = self.way == "helper"
        tools = [
            {"type": "function", "name": name, "parameters": schema, "strict": strict}
            for name, schema in self.tools.items()
        ]
        given: Json = {"model": self.model, "input": list(self.history), "tools": tools, **self.more}
        if self._kept:
            given |= {"previous_response_id": self.previous} if self.previous is not None else {}
        else:
            given |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if self.way == "whole":
            return await responses.create(**given)
        if self.way == "helper":
            async with responses.stream(**given) as stream:
                return await stream.get_final_response()
        last: Any = None
        async for event in await responses.create(stream=True, **given):
            last = event
        assert last.type in ("response.completed", "response.incomplete", "response.failed"), last
        return last.response


_CONVERSATIONS: Final[dict[str, type[Conversation]]] = {
    "openai_chat": _Chat,
    "anthropic": _Messages,
    "openai_responses": _Responses,
}
