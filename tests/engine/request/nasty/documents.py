"""Requests with documents that no Kimi host takes: each of them reaches the host, with a note at least."""

from __future__ import annotations

from typing import Any, Final

from tests.engine.request.nasty.case import Json, Nasty, chat, messages, responses

__all__ = ["DOCUMENTS"]

PDF: Final = "JVBERi0xLjQKJcfsj6IKNSAwIG9iago="
DATA: Final = f"data:application/pdf;base64,{PDF}"


def _document(**source: Any) -> Json:
    return {"type": "document", "source": source}


def _user(*content: Json) -> Json:
    return {"role": "user", "content": list(content)}


_OF_MESSAGES: Final = (
    _document(type="base64", media_type="application/pdf", data=PDF),
    _document(type="url", url="https://example.com/a.pdf"),
    _document(type="file", file_id="file_1"),
    {"type": "image", "source": {"type": "file", "file_id": "file_2"}},
)

DOCUMENTS: Final[tuple[Nasty, ...]] = (
    messages("documents of every source", _user({"type": "text", "text": "Sum this up."}, *_OF_MESSAGES)),
    messages(
        "documents in a tool result",
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]},
        _user({"type": "tool_result", "tool_use_id": "t1", "content": list(_OF_MESSAGES)}),
    ),
    chat(
        "documents of every source in Chat",
        _user(
            {"type": "file", "file": {"filename": "a.pdf", "file_data": DATA}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "file", "file": {"filename": "b.docx", "file_data": "data:application/zip;base64,UEsDBA=="}},
            {"type": "image_url", "image_url": {"url": DATA}},
        ),
    ),
    responses(
        "documents of every source in Responses",
        _user(
            {"type": "input_file", "filename": "a.pdf", "file_data": DATA},
            {"type": "input_file", "file_id": "file-1"},
            {"type": "input_file", "file_url": "https://example.com/a.pdf"},
            {"type": "input_image", "file_id": "file-2"},
        ),
    ),
)
"""The words of a note are not words of the client: `words` looks for none of them."""
