"""A conversation summary <-> the item that represents it: signed for the client, text for every host.

`{"type": "compaction", "encrypted_content": …}` is the response of `/v1/responses/compact`, and clients put it in
place of the conversation so far. So is the response to a request whose input ends in `{"type": "compaction_trigger"}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from moonshim.engine.dialects.openai_responses.extras import TRIGGER, Json
from moonshim.engine.signing import ALTERED, InvalidSignature, SignedPayload, Signer, UnknownSigningKey, is_signed
from moonshim.engine.values.conversation import Change

__all__ = ["COMPACTIONS", "SUMMARY_WANTED", "is_users_message", "parse_compaction", "render_compaction", "shorten"]

COMPACTIONS: Final = frozenset({"compaction", "compaction_summary"})
"""Codex has used the second name as well."""
SUMMARY_WANTED: Final = (
    "Stop here. This conversation has grown too long and is going to be shortened: the messages of the user stay, and"
    " everything else will be replaced by what you write now. Write a summary from which you could go on without having"
    " seen the rest. Say what is wanted and what has been decided and why; what was done and with what result; which"
    " files, names, commands, values and errors matter, exactly as they are; what is still open, and what the next step"
    " is. Do not repeat the user's messages. Do not call any tool and do not go on with the task: answer with the"
    " summary alone."
)
"""The question for a summary, after the conversation."""
_INTRODUCTION: Final = (
    "This is a summary of what was said and done in this conversation before this point:\n\n"  # prose: quoted
)


def is_users_message(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type", "message") == "message" and item.get("role") == "user"


def shorten(items: Sequence[Json]) -> list[Json]:
    """A stored conversation without what its last compaction replaced.

    The messages of the user stay, as in the response of `/v1/responses/compact`: the summary does not repeat them.

    >>> said = [{"role": "user", "content": "Fix it."}, {"type": "message", "role": "assistant", "content": "How?"}]
    >>> shorten([*said, {"type": "compaction_trigger"}, {"type": "compaction", "encrypted_content": "…"}])
    [{'role': 'user', 'content': 'Fix it.'}, {'type': 'compaction', 'encrypted_content': '…'}]
    """
    for place in range(len(items) - 1, 0, -1):
        if items[place].get("type") in COMPACTIONS and items[place - 1].get("type") == TRIGGER:
            return [*filter(is_users_message, items[: place - 1]), *items[place:]]
    return list(items)


def render_compaction(summary: str, signer: Signer, id: str) -> Json:
    """The item for a summary.

    >>> item = render_compaction("They fixed the bug.", Signer(b"secret"), "cmp_1")
    >>> parse_compaction(item, Signer(b"secret"), "input[0]", [])["content"][0]["text"].split()[-4:]
    ['They', 'fixed', 'the', 'bug.']
    """
    return {"id": id, "type": "compaction", "encrypted_content": signer.sign(SignedPayload(text=summary), "summary")}


def parse_compaction(item: Json, signer: Signer, where: str, changes: list[Change]) -> Json:
    """The message for an item that we signed; any other item is returned unchanged.

    An item signed under another key is reported. One encrypted by another host is an opaque item.
    """
    token, place = item.get("encrypted_content"), f"{where}.encrypted_content"
    if not isinstance(token, str) or not is_signed(token):
        return item
    try:
        summary = signer.open(token, "summary", field=place).text
    except UnknownSigningKey as unknown:
        detail = f"summary dropped: it was signed with a different key ({unknown})"
        changes.append(Change("seal_unknown", detail, place))
        return item
    except UnicodeEncodeError:
        raise InvalidSignature(ALTERED, field=place) from None
    content = [{"type": "input_text", "text": _INTRODUCTION + (summary or "")}]
    return {"type": "message", "role": "user", "content": content}
