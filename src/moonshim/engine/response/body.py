"""Repairs a non-streaming response, with the same rules as a stream."""

from __future__ import annotations

from typing import Any, Unpack

from msgspec import Struct

from moonshim.engine.plan import Plan, PlanArguments, plan_for
from moonshim.engine.response.pipeline import ResponsePipeline
from moonshim.engine.values.conversation import Message, Usage
from moonshim.engine.values.events import Failed, Finished, Repaired
from moonshim.errors import InvalidInput

__all__ = ["Mended", "mend_response", "with_client_model"]


class Mended(Struct, frozen=True):
    """The result of `mend_response`: the repaired response and a report."""

    body: dict[str, Any]
    """The response for the client."""
    repairs: list[Repaired]
    """The first 256 repairs, in order."""
    message: Message = Message("assistant")
    """The message of the first choice."""
    ending: Finished | Failed | None = None
    """How the first choice ended."""
    repair_counts: dict[str, int] = {}
    """The number of repairs by rule, including those that `repairs` does not contain."""
    usage: Usage | None = None
    """The usage as token counts with the same meaning for every host."""
    reasoning_field: str | None = None
    """The field in which a Chat host sends reasoning and expects it back; None without reasoning, or with copies."""


def mend_response(body: dict[str, Any], **request: Unpack[PlanArguments]) -> Mended:
    """Repair a non-streaming response. `body` is not modified.

    With the `plan` from `prepare_request`, the body is read in the host's dialect and written in the client's, with
    the model name that the client requested. Without a plan, both sides use Chat, and these arguments describe the
    request: `model`, and if known `tools`, `tool_choice`, `history` and `options`.

    Where a stream would end with an error event, the returned body has an `error` next to its content, and the choice
    has no finish reason. Raises `InvalidInput` if `body` is not a dict, or for an invalid argument.
    """
    if not isinstance(body, dict):
        raise InvalidInput(f"body must be a dict, not {type(body).__name__}", field="body")
    plan = plan_for(**request)
    pipeline: ResponsePipeline[None] = ResponsePipeline(plan)
    mended = pipeline.mend_body(body if plan.translates else with_client_model(body, plan))
    log = pipeline.log
    return Mended(
        mended,
        log.repairs,
        pipeline.message(),
        pipeline.ending(),
        dict(log.counts),
        pipeline.normalized_usage,
        pipeline.reasoning_field,
    )


def with_client_model(body: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """A chunk or a complete response with the model name that the client requested."""
    if plan.client is None or body.get("error") or body.get("model", plan.reply.model) == plan.reply.model:
        return body
    return body | {"model": plan.reply.model}
