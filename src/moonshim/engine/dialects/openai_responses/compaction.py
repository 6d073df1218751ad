"""A summary of a conversation <-> the item that stands for it: sealed for the client, text for every host.

`{"type": "compaction", "encrypted_content": …}` is what `/v1/responses/compact` answers and
what clients put in place of all that was said before.
"""

from __future__ import annotations

from typing import Final

from moonshim.engine.dialects.openai_responses.content import Json
from moonshim.engine.signing import InvalidSignature, SignedPayload, Signer, UnknownSigningKey, is_signed
from moonshim.engine.values.conversation import Change

__all__ = ["COMPACTIONS", "read_compaction", "write_compaction"]

COMPACTIONS: Final = frozenset({"compaction", "compaction_summary"})
"""Codex has called it by the second name as well."""
_INTRODUCED: Final = "This is a summary of what was said and done in this conversation before this point:\n\n"


def write_compaction(summary: str, signer: Signer, id: str) -> Json:
    """The item that stands for what was summed up.

    >>> item = write_compaction("They fixed the bug.", Signer(b"secret"), "cmp_1")
    >>> read_compaction(item, Signer(b"secret"), "input[0]", [])["content"][0]["text"].split()[-4:]
    ['They', 'fixed', 'the', 'bug.']
    """
    return {"id": id, "type": "compaction", "encrypted_content": signer.sign(SignedPayload(text=summary), "summary")}


def read_compaction(item: Json, signer: Signer, where: str, changes: list[Change]) -> Json:
    """The message that says what an item of ours stands for; the item itself where it is not ours to read.

    What was sealed under a key that we do not have is told. What another host encrypted is
    an item like any other that nobody else can read.
    """
    token, place = item.get("encrypted_content"), f"{where}.encrypted_content"
    if not isinstance(token, str) or not is_signed(token):
        return item
    try:
        summary = signer.open(token, "summary", field=place).text
    except UnknownSigningKey as unknown:
        detail = f"the summary was made under the key {unknown}, which is not ours; it was left out"
        changes.append(Change("seal_unknown", detail, place))
        return item
    except UnicodeEncodeError:
        raise InvalidSignature("this token was issued by Moonshim and has been altered", field=place) from None
    content = [{"type": "input_text", "text": _INTRODUCED + (summary or "")}]
    return {"type": "message", "role": "user", "content": content}
