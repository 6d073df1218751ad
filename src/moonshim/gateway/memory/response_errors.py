"""What a Responses client refers to and nobody knows -> a refusal, in the words of OpenAI's API: clients match them."""

from __future__ import annotations

from typing import Any

from moonshim.errors import Problem, Refused

__all__ = ["refused", "refused_conversation", "refused_for_now", "refused_response", "refused_size", "shown"]


def shown(id: str) -> str:
    return f"'{id if len(id) <= 100 else id[:100] + '…'}'"


def refused(message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> Refused:
    return Refused(Problem(status=status, kind="invalid_request", message=message, param=param, code=code))


def refused_response(id: str) -> Refused:
    return refused(f"Response with id {shown(id)} not found.", status=404)


def refused_conversation(conversation: Any, *, both: bool) -> Refused:
    if both:
        return refused(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.", param="conversation"
        )
    id = conversation.get("id") if isinstance(conversation, dict) else conversation
    return refused(f"Conversation with id {shown(str(id))} not found.", status=404, param="conversation")


def refused_size(limit: int) -> Refused:
    return refused(
        "This request stands for too much: with all that it goes on from and refers to, its input has more than"
        f" {limit:,} bytes. Refer to less, compact the conversation, or send what matters of it as input.",
        param="input",
    )


def refused_for_now() -> Refused:
    return Refused(
        Problem(
            status=503,
            kind="overloaded",
            message="What was answered earlier cannot be read at the moment. Please try again.",
            code="store_unavailable",
            retry_after=1.0,
        )
    )
