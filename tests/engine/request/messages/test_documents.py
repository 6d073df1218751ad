"""Documents for models that accept none: text, images of pages, or a note that names the document and says why."""

from __future__ import annotations

import base64
from typing import Any, Final

import pytest

from moonshim.engine.prepare import Prepared, count_tokens, read_request
from moonshim.engine.request.messages.documents import Documents
from moonshim.engine.values.documents import DocumentPage, ExtractedDocument

PDF: Final = base64.b64encode(b"%PDF-1.7 and so on").decode()
WORD: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PAPER: Final = ExtractedDocument((DocumentPage("First."), DocumentPage("Second.")), 2)
SCAN: Final = ExtractedDocument((DocumentPage("Cover."), DocumentPage(image="AAAA", media_type="image/jpeg")), 2)
SEES, BLIND = "kimi-k2.6", "kimi-k2-0905"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def prepared(
    *content: dict[str, Any],
    dialect: str = "anthropic",
    model: str = SEES,
    extracted: Documents | None = None,
    **target: Any,
) -> Prepared:
    key = "input" if dialect == "openai_responses" else "messages"
    body = {"model": model, "max_tokens": 99, key: [{"role": "user", "content": list(content)}]}
    if dialect != "anthropic":
        del body["max_tokens"]
    parsed = read_request(body, dialect=dialect)
    parsed.extracted = extracted or {}
    return parsed.prepare(**{"host": "moonshot", **target})


def sent(*content: dict[str, Any], **given: Any) -> tuple[list[str], list[str]]:
    """The texts and images of the message, and the rules that acted."""
    request = prepared(*content, **given)
    found = request.body["messages"][-1]["content"]
    entries: list[dict[str, Any]] = [{"type": "text", "text": found}] if isinstance(found, str) else found
    shown = [entry["text"] if entry["type"] == "text" else entry["image_url"]["url"] for entry in entries]
    return shown, [change.rule for change in request.changes if change.rule in RULES]


RULES: Final = ("document_text", "document_images", "media_left_out")


def document(data: str, media_type: str = "application/pdf", **more: Any) -> dict[str, Any]:
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}, **more}


def chat_file(data: str, name: str = "a.pdf") -> dict[str, Any]:
    return {"type": "file", "file": {"filename": name, "file_data": data}}


def test_the_pages_of_a_pdf_are_sent_as_text_under_its_name() -> None:
    expected = ["# a.pdf\n\n[Page 1 of 2]\nFirst.\n\n[Page 2 of 2]\nSecond."], ["document_text"]
    assert sent(document(PDF, title="a.pdf"), extracted={PDF: PAPER}) == expected
    url = f"data:application/pdf;base64,{PDF}"
    assert sent(chat_file(url), dialect="openai_chat", extracted={PDF: PAPER}) == expected
    file = {"type": "input_file", "filename": "a.pdf", "file_data": url}
    assert sent(file, dialect="openai_responses", extracted={PDF: PAPER}) == expected


@pytest.mark.parametrize(
    "entry",
    [
        chat_file(PDF),
        chat_file(f"data:application/octet-stream;base64,{PDF}"),
        chat_file(f"data:text/plain;base64,{PDF}"),
        {"type": "image_url", "image_url": {"url": f"data:application/pdf;base64,{PDF}"}},
    ],
    ids=["base64 alone", "a type of all binary data", "as text", "as an image"],
)
def test_a_pdf_is_recognised_whatever_a_client_calls_it(entry: dict[str, Any]) -> None:
    shown, rules = sent(entry, dialect="openai_chat", extracted={PDF: PAPER})
    assert "[Page 2 of 2]\nSecond." in shown[0]
    assert rules == ["document_text"]


def test_pages_without_text_are_sent_as_images_to_a_model_that_sees_them() -> None:
    shown, rules = sent(document(PDF), extracted={PDF: SCAN})
    assert shown == [
        "# PDF document\n\n[Page 1 of 2]\nCover.\n\n[Page 2 of 2: an image]",
        "data:image/jpeg;base64,AAAA",
    ]
    assert rules == ["document_text", "document_images"]


def test_a_model_that_sees_no_images_is_told_which_pages_are_images() -> None:
    shown, rules = sent(document(PDF), model=BLIND, extracted={PDF: SCAN})
    assert shown == ["# PDF document\n\n[Page 1 of 2]\nCover.\n\n[Page 2 of 2: an image, which you cannot see]"]
    assert rules == ["document_text"]
    only = ExtractedDocument((DocumentPage(image="AAAA", media_type="image/jpeg"),), 1)
    shown, rules = sent(document(PDF, title="scan.pdf"), model=BLIND, extracted={PDF: only})
    assert shown == ['[The document "scan.pdf" could not be read: its pages are images, which you cannot see.]']
    assert rules == ["media_left_out"]


SOURCES: Final[dict[str, dict[str, Any]]] = {
    "a PDF": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    "text": {"type": "text", "media_type": "text/plain", "data": "Words."},
    "blocks": {"type": "content", "content": "Words."},
    "a URL": {"type": "url", "url": "https://x.org/a.pdf"},
    "a file id": {"type": "file", "file_id": "f1"},
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_what_the_client_says_about_a_document_is_sent_before_it(source: dict[str, Any]) -> None:
    block = {"type": "document", "source": source, "title": "a.pdf"}
    plain, rules = sent(block, extracted={PDF: PAPER})
    context = '[About the document "a.pdf": From the archive.]'
    assert sent({**block, "context": "From the archive."}, extracted={PDF: PAPER}) == ([context, *plain], rules)
    assert sent({**block, "context": None}, extracted={PDF: PAPER}) == (plain, rules)


def test_an_image_inside_a_document_of_blocks_is_mentioned() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    source = {"type": "content", "content": [{"type": "text", "text": "Above."}, image]}
    shown, _ = sent({"type": "document", "source": source})
    assert shown == ["Above.\n[An image, which is not shown.]"]


def test_a_document_that_is_too_long_says_what_is_missing() -> None:
    part = ExtractedDocument((DocumentPage("First."),), 12, "only its first page is read")
    shown, rules = sent(document(PDF, title="long.pdf"), extracted={PDF: part})
    assert shown[0].endswith(
        '[The document "long.pdf" continues, but pages 2 to 12 are not shown: only its first page is read.]'
    )
    assert rules == ["document_text", "media_left_out"]
    cut = ExtractedDocument((DocumentPage("First."),), 1, "only its first 10 characters are read")
    assert "but the rest is not shown" in sent(document(PDF), extracted={PDF: cut})[0][0]


ELSEWHERE: Final = "it is stored at another service, which only its own models can read"
NOTES: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "a URL": (
        {"type": "document", "source": {"type": "url", "url": "https://x.org/a.pdf"}},
        "anthropic",
        "[The document could not be read: it is at https://x.org/a.pdf, and documents are not downloaded.]",
    ),
    "an empty text": (
        {"type": "document", "title": "a.txt", "source": {"type": "text", "media_type": "text/plain", "data": ""}},
        "anthropic",
        '[The document "a.txt" could not be read: it is empty.]',
    ),
    "an empty file": (chat_file("", "a.txt"), "openai_chat", '[The document "a.txt" could not be read: it is empty.]'),
    "a file id of Messages": (
        {"type": "document", "title": "a.pdf", "source": {"type": "file", "file_id": "f1"}},
        "anthropic",
        f'[The document "a.pdf" could not be read: {ELSEWHERE}.]',
    ),
    "a file id of Chat": (
        {"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}},
        "openai_chat",
        f'[The document "a.pdf" could not be read: {ELSEWHERE}.]',
    ),
    "a file id of Responses": (
        {"type": "input_file", "file_id": "f1"},
        "openai_responses",
        f"[The document could not be read: {ELSEWHERE}.]",
    ),
    "an image that only its host knows": (
        {"type": "input_image", "file_id": "f1"},
        "openai_responses",
        f"[The image could not be read: {ELSEWHERE}.]",
    ),
    "a Word document": (
        chat_file(f"data:{WORD};base64,UEsDBA==", "a.docx"),
        "openai_chat",
        f'[The document "a.docx" could not be read: only PDF and text documents can be read, and this is {WORD}.]',
    ),
    "binary data": (
        chat_file(b64(b"\0\1\2\3\xff"), "a.bin"),
        "openai_chat",
        '[The document "a.bin" could not be read: only PDF and text documents can be read.]',
    ),
    "text that is not": (
        document(b64(b"\0\1\2\xff"), "text/plain"),
        "anthropic",
        "[The document could not be read: its data is not text.]",
    ),
    "a PDF that nobody has extracted": (
        document(PDF, title="a.pdf"),
        "anthropic",
        '[The document "a.pdf" could not be read: its text was not extracted.]',
    ),
}


@pytest.mark.parametrize(("entry", "dialect", "note"), NOTES.values(), ids=NOTES.keys())
@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
def test_a_document_that_cannot_be_read_is_replaced_by_a_note(
    entry: dict[str, Any], dialect: str, note: str, upstream: str
) -> None:
    request = prepared(entry, dialect=dialect, upstream=upstream)
    content = request.body["messages"][-1]["content"]
    assert content == note if isinstance(content, str) else content == [{"type": "text", "text": note}]
    assert "media_left_out" in [change.rule for change in request.changes]


@pytest.mark.parametrize(
    ("data", "media_type", "text"),
    [
        (b"a,b", "text/csv", "a,b"),
        ("größe;1".encode("cp1252"), "text/csv", "größe;1"),
        ("größe".encode("utf-16"), "text/plain", "größe"),
        (b"\xef\xbb\xbfhello", "text/plain; charset=utf-8", "hello"),
        (b"<p>hi</p>", "text/html", "<p>hi</p>"),
        (b"{}", "application/json", "{}"),
        (b"plain words", "application/octet-stream", "plain words"),
    ],
)
def test_text_is_sent_as_text_in_any_encoding_that_can_be_recognised(data: bytes, media_type: str, text: str) -> None:
    assert sent(document(b64(data), media_type)) == ([text], ["document_text"])


def test_an_image_in_a_file_part_is_sent_as_an_image() -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    shown, rules = sent(chat_file(url, "a.png"), dialect="openai_chat")
    assert (shown, rules) == ([url], ["document_images"])


def test_the_words_are_the_same_in_every_turn() -> None:
    """In the last turn and in an earlier one, in a message and in a tool result."""
    for extracted in ({PDF: PAPER}, {PDF: ExtractedDocument(problem="it is encrypted")}, {}):
        first = [{"role": "user", "content": [document(PDF, title="a.pdf")]}]
        later = [*first, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}]
        seen = []
        for messages in (first, later):
            parsed = read_request({"model": SEES, "max_tokens": 9, "messages": messages}, dialect="anthropic")
            parsed.extracted = extracted
            seen.append(parsed.prepare(host="moonshot").body["messages"][0])
        assert seen[0] == seen[1]


def test_a_document_in_a_tool_result_stays_there_and_its_images_follow() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [document(PDF)]}]},
    ]
    parsed = read_request({"model": SEES, "max_tokens": 9, "messages": messages}, dialect="anthropic")
    assert [media.data for media in parsed.documents()] == [PDF]
    parsed.extracted = {PDF: SCAN}
    tool, user = parsed.prepare(host="moonshot").body["messages"][-2:]
    assert tool["content"][0]["text"] == "# PDF document\n\n[Page 1 of 2]\nCover.\n\n[Page 2 of 2: an image]"
    assert user["content"][-1]["image_url"]["url"] == "data:image/jpeg;base64,AAAA"
    blocks = parsed.prepare(host="moonshot", upstream="anthropic").body["messages"][-1]["content"][0]["content"]
    assert [block["type"] for block in blocks] == ["text", "image"]


def test_a_host_that_accepts_files_gets_the_file_itself() -> None:
    entry = chat_file(f"data:application/pdf;base64,{PDF}")
    kept = prepared(entry, dialect="openai_chat", model="gpt-5", host="generic", extracted={PDF: PAPER})
    assert kept.body["messages"][0]["content"] == [entry]
    for known in ({"type": "file", "file": {"file_id": "f1"}}, chat_file(PDF), chat_file("https://x.org/a.pdf")):
        kept = prepared(known, dialect="openai_chat", model="gpt-5", host="generic")
        assert kept.body["messages"][0]["content"] == [known]
    # Only the host that stores a file can read it.
    moved = prepared(
        {"type": "file", "file": {"file_id": "f1"}},
        dialect="openai_chat",
        model="claude-5",
        host="generic",
        upstream="anthropic",
    )
    assert "stored at another service" in str(moved.body["messages"][0]["content"])


def test_the_text_of_documents_counts_as_tokens() -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [document(PDF)]}]}
    parsed = read_request(body, dialect="anthropic")
    parsed.extracted = {PDF: ExtractedDocument((DocumentPage("many words " * 5000),), 1)}
    assert parsed.estimate_tokens() > 5000
    assert parsed.sample_tokens() > 5000
    assert count_tokens(body) < 5000
