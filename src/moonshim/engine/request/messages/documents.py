"""A document -> its text, images of its pages, or a note that names it and says why it cannot be read.

| document | what the model gets |
|---|---|
| text, in any encoding that can be recognised | the text |
| PDF that a shell has extracted (`ExtractedDocument`) | the text of each page; pages without text as images |
| anything else | a note |

The result depends on the document alone, so that it is the same in every turn of a conversation: hosts cache prompts.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.values.conversation import Change, Media, Message, Text, ToolResult
from moonshim.engine.values.documents import DocumentPage, ExtractedDocument

__all__ = ["Documents", "adapt_document", "documents_in", "is_document", "show_documents"]

Documents: TypeAlias = Mapping[str, ExtractedDocument]
"""What was extracted, by the data of the document in base64."""

_TEXTUAL: Final = re.compile(
    r"text/.*|application/(?:json|xml|yaml|x-yaml|toml|javascript|x-ndjson|x-sh|sql|.*\+(?:json|xml))", re.IGNORECASE
)
_UNTYPED: Final = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_PDF: Final = frozenset({"application/pdf", "application/x-pdf"})
_DATA_URL: Final = re.compile(r"data:([^,]*?);base64,", re.IGNORECASE)
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_PDF_START: Final = base64.b64encode(b"%PDF-1").decode()
_START: Final = 1400
"""Characters of base64 in which the signature of a PDF is looked for: readers accept it in the first 1,024 bytes."""


class ShownDocument(Struct, frozen=True):
    """What the model gets in place of a document."""

    parts: tuple[Text | Media, ...]
    changes: tuple[Change, ...]
    """Without the place of the document, which only its message knows."""


def is_document(media: Media) -> bool:
    """Whether it is a document, also if a client sends it as an image; or a file that is stored at another host."""
    return media.kind == "file" or (media.url is None and media.data is None) or _type_of(media) in _PDF


def documents_in(messages: Sequence[Message]) -> Iterator[Media]:
    """The documents of a conversation that a shell has to extract: PDFs with their data."""
    for message in messages:
        if message.is_one_text:
            continue
        for part in message.parts:
            for inner in part.parts if isinstance(part, ToolResult) else (part,):
                if isinstance(inner, Media) and is_document(inner) and (data := _data_of(inner)) is not None:
                    found = inner if inner.data is data else replace(inner, data=data, url=None)
                    if _is_pdf(found, data):
                        yield found


def adapt_document(media: Media, extracted: Documents, *, sees_images: bool) -> ShownDocument:
    """What a model gets that does not accept files.

    >>> adapt_document(Media("file", url="https://x.org/a.pdf", name="a.pdf"), {}, sees_images=True).parts[0].text
    '[The document "a.pdf" could not be read: it is at https://x.org/a.pdf, and documents are not downloaded.]'
    """
    shown = _adapt(media, extracted, sees_images)
    if media.context is None:
        return shown
    return replace(shown, parts=(Text(f"[About the document{_quoted(media)}: {media.context}]"), *shown.parts))


def _adapt(media: Media, extracted: Documents, sees_images: bool) -> ShownDocument:
    data, media_type = _data_of(media), _type_of(media)
    if data is None:
        return _note(media, _why_elsewhere(media))
    if media_type.startswith("image/") and sees_images:
        image = Media("image", data=data, media_type=media_type, detail=media.detail)
        return ShownDocument((image,), (Change("document_images", "file sent as an image: that is what it contains"),))
    if _is_pdf(media, data):
        found = extracted.get(data)
        return _note(media, "its text was not extracted") if found is None else _show(media, found, sees_images)
    text = _text_of(data, media_type)
    if text is None:
        return _note(media, _why_not_text(media_type))
    if not text.strip():
        return _note(media, "it is empty")
    return ShownDocument(
        (Text(f"# {media.name}\n\n{text}" if media.name else text),),
        (Change("document_text", "document sent as text: the host does not accept files"),),
    )


def show_documents(messages: Sequence[Message], extracted: Documents) -> tuple[Message, ...]:
    """The messages with the text of their documents, for an estimate of its tokens."""

    def shown(part: Text | Media) -> tuple[Text | Media, ...]:
        if not isinstance(part, Media) or not is_document(part):
            return (part,)
        return adapt_document(part, extracted, sees_images=True).parts

    out = list[Message]()
    for message in messages:
        if not message.is_one_text:
            parts = list(message.parts)
            for at in range(len(parts) - 1, -1, -1):
                part = parts[at]
                if isinstance(part, Media):
                    parts[at : at + 1] = shown(part)
                elif isinstance(part, ToolResult):
                    parts[at] = replace(part, parts=tuple(new for inner in part.parts for new in shown(inner)))
            message = replace(message, parts=tuple(parts))
        out.append(message)
    return tuple(out)


# --- what it is ---------------------------------------------------------------------------------------------------


def _type_of(media: Media) -> str:
    """The media type, without parameters; empty if nobody says."""
    found = media.media_type
    if found is None and media.data is None and (url := _DATA_URL.match(media.url or "")) is not None:
        found = url[1]
    return (found or "").partition(";")[0].strip().lower()


def _data_of(media: Media) -> str | None:
    """The data in base64; None if it is somewhere else."""
    if media.data is None and (url := _DATA_URL.match(media.url or "")) is not None:
        return (media.url or "")[url.end() :]
    return media.data


def _is_pdf(media: Media, data: str) -> bool:
    if _type_of(media) in _PDF:
        return True
    # Whatever a client calls it: some send no type, others the type of all binary data or of text.
    if _type_of(media) in _UNTYPED:
        return b"%PDF-" in _decode(data[:_START])
    return data.startswith(_PDF_START)


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data[: len(data) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _text_of(data: str, media_type: str) -> str | None:
    """The text of a document; None if it is not text."""
    declared = _TEXTUAL.fullmatch(media_type) is not None
    if not declared and media_type not in _UNTYPED:
        return None
    try:
        content = base64.b64decode(data)
    except (binascii.Error, ValueError):
        return None
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        # Spreadsheets are often exported in this encoding.
        text = content.decode("cp1252", "replace") if declared else "\0"
    else:
        if declared:
            return text
    return None if _CONTROLS.search(text) else text


# --- what is shown ------------------------------------------------------------------------------------------------


def _why_not_text(media_type: str) -> str:
    if _TEXTUAL.fullmatch(media_type):
        return "its data is not text"
    return f"only PDF and text documents can be read{'' if media_type in _UNTYPED else f', and this is {media_type}'}"


def _why_elsewhere(media: Media) -> str:
    if media.url is None:
        return "it is stored at another service, which only its own models can read"
    if media.url.startswith(("http://", "https://")):
        return f"it is at {media.url}, and documents are not downloaded"
    return "its address is not a URL that can be read"


def _note(media: Media, problem: str) -> ShownDocument:
    kind = "document" if media.kind == "file" else media.kind
    text = f"[The {kind}{_quoted(media)} could not be read: {problem}.]"
    return ShownDocument((Text(text),), (Change("media_left_out", f"{kind} replaced with a note: {problem}"),))


def _quoted(media: Media) -> str:
    return f' "{media.name}"' if media.name else ""


def _show(media: Media, document: ExtractedDocument, sees_images: bool) -> ShownDocument:
    """The pages of a document: text, and images between it."""
    pages, count = document.pages, document.page_count
    images = sum(page.image is not None for page in pages)
    texts = sum(bool(page.text) for page in pages)
    if not texts and not (images and sees_images):
        return _note(media, document.problem or _without_text(pages))
    parts, lines = list[Text | Media](), [f"# {media.name or 'PDF document'}"]
    for number, page in enumerate(pages, 1):
        lines.append(f"[Page {number} of {count}{_why_no_text(page, sees_images)}]\n{page.text}".rstrip())
        if page.image is not None and sees_images:
            parts += (Text("\n\n".join(lines)), Media("image", data=page.image, media_type=page.media_type))
            lines = []
    if document.problem is not None:
        rest = f"pages {len(pages) + 1} to {count} are" if count > len(pages) else "the rest is"
        lines.append(f"[The document{_quoted(media)} continues, but {rest} not shown: {document.problem}.]")
    if lines:
        parts.append(Text("\n\n".join(lines)))
    changes = list[Change]()
    if texts:
        changes.append(Change("document_text", "text of a PDF document sent: the host does not accept files"))
    if images and sees_images:
        changes.append(Change("document_images", "pages of a PDF document that have no text sent as images"))
    if document.problem is not None:
        changes.append(Change("media_left_out", f"pages of a PDF document left out: {document.problem}"))
    return ShownDocument(tuple(parts), tuple(changes))


def _without_text(pages: Sequence[DocumentPage]) -> str:
    if any(page.image is not None for page in pages):
        return "its pages are images, which you cannot see"
    problem = next((page.problem for page in pages if page.problem is not None), None)
    return "it contains no text" if problem is None else f"its pages have no text: {problem}"


def _why_no_text(page: DocumentPage, sees_images: bool) -> str:
    if page.text:
        return ""
    if page.image is None:
        return f": {page.problem or 'no text'}"
    return ": an image" if sees_images else ": an image, which you cannot see"
