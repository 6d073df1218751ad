"""What a shell has extracted from a document: text and images by page, or why there is nothing."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["DocumentPage", "ExtractedDocument"]


class DocumentPage(Struct, frozen=True, omit_defaults=True):
    """One page: its text; or, if it has none, an image of it."""

    text: str = ""
    image: str | None = None
    """In base64: the image that fills a scanned page."""
    media_type: str | None = None
    """Type of the image: `image/jpeg` or `image/png`."""
    problem: str | None = None
    """Why it has neither text nor an image."""


class ExtractedDocument(Struct, frozen=True, omit_defaults=True):
    """The content of a document. The same document always has the same content: it is part of the prompt."""

    pages: tuple[DocumentPage, ...] = ()
    """The first pages; all of them, if there are `page_count`."""
    page_count: int = 0
    problem: str | None = None
    """Why it has no pages, or not all of them; completes a sentence (`it is encrypted`)."""
