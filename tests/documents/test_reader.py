"""PDF files, good and hostile, read by the process that is made for it."""

from __future__ import annotations

import base64
import os
import textwrap
from pathlib import Path

import pytest

from moonshim.documents import DocumentReader, reader
from moonshim.engine.values.conversation import Media
from moonshim.engine.values.documents import DocumentPage, ExtractedDocument
from tests.support.pdf_files import HOSTILE, JPEG, as_base64, pixels, scanned, stream, text_bomb, text_pdf, write_pdf


def read(data: bytes) -> ExtractedDocument:
    return DocumentReader().read(Media("file", data=as_base64(data), media_type="application/pdf"))


def test_text_comes_page_by_page() -> None:
    found = read(text_pdf("Hello, world.\nA second (line).", "", "The end."))
    assert found == ExtractedDocument(
        (DocumentPage("Hello, world.\nA second (line)."), DocumentPage(), DocumentPage("The end.")), 3
    )


def test_a_scanned_page_comes_as_the_image_that_the_scanner_made() -> None:
    found = read(scanned(2))
    assert found.pages == (DocumentPage(image=as_base64(JPEG), media_type="image/jpeg"),) * 2


IMAGES = {
    "colours": (pixels(2, 1, bytes([255, 0, 0, 0, 255, 0])), 2),
    "grey": (pixels(2, 1, bytes([0, 255]), space=b"/DeviceGray"), 0),
    "black and white": (pixels(8, 2, b"\xf0\x0f", bits=1, space=b"/DeviceGray"), 0),
    "a palette": (pixels(2, 1, b"\x10", bits=4, space=b"[/Indexed /DeviceRGB 1 <ff000000ff00>]"), 3),
}


@pytest.mark.parametrize(("image", "kind"), IMAGES.values(), ids=IMAGES.keys())
def test_pixels_come_as_a_png(image: bytes, kind: int) -> None:
    (page,) = read(scanned(1, image)).pages
    assert page.media_type == "image/png"
    data = base64.b64decode(page.image or "")
    assert (data[:8], data[12:16], data[25]) == (b"\x89PNG\r\n\x1a\n", b"IHDR", kind)


def test_an_image_that_cannot_be_shown_says_so() -> None:
    head = b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceRGB /BitsPerComponent 8"
    (page,) = read(scanned(1, stream(b"0000", head + b" /Filter /JPXDecode"))).pages
    assert page == DocumentPage(problem="an image in a format that cannot be shown")


def test_a_page_that_is_damaged_does_not_cost_the_others() -> None:
    data = text_pdf("One.", "Two.").replace(
        b"BT /F1 12 Tf 14 TL 72 720 Td (One.) Tj", b"BT /F1 12 Tf [[[[[[[ << << (One"
    )
    assert read(data).pages[1] == DocumentPage("Two.")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_read_as_far_as_it_can_be_and_no_further(name: str) -> None:
    make, problem = HOSTILE[name]
    found = read(make())
    assert found.problem == problem
    assert bool(found.pages) == (name == "10,000 pages")


def test_the_number_and_size_of_documents_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BYTES", 100)
    assert read(text_pdf("Too long.")).problem == "it is larger than 32 MiB"
    monkeypatch.undo()
    many = [Media("file", data=as_base64(text_pdf(f"Number {n}."))) for n in range(2)]
    monkeypatch.setattr(reader, "MAX_DOCUMENTS", 1)
    first, second = DocumentReader().read_all(many).values()
    assert first.pages[0].text == "Number 0."
    assert second.problem == "only the first 20 documents of a conversation are read"


def test_a_process_that_takes_too_long_is_killed() -> None:
    media = Media("file", data=as_base64(text_bomb()))
    assert DocumentReader(seconds=0.3).read(media).problem == "reading it takes too long"


def test_without_the_package_that_reads_them_a_document_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_pypdf_folder", lambda: None)
    assert "moonshim[documents]" in (read(text_pdf("x")).problem or "")


class TestTheProcess:
    """With a package in place of pypdf that does what an attacker would like to do."""

    def run(self, folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> ExtractedDocument:
        package = folder / "pypdf"
        package.mkdir()
        names = "DependencyError", "FileNotDecryptedError", "LimitReachedError"
        (package / "errors.py").write_text("".join(f"class {name}(Exception): pass\n" for name in names))
        page = "class PdfReader:\n    is_encrypted = False\n    def __init__(self, file): self.pages = [self]\n"
        body = textwrap.indent(textwrap.dedent(code), "        ")
        (package / "__init__.py").write_text(f"{page}    def extract_text(self):\n{body}\n")
        monkeypatch.setattr(reader, "_pypdf_folder", lambda: str(folder))
        return read(write_pdf({1: b"<< >>"}))

    def test_has_no_secrets(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MOONSHOT_API_KEY", "sk-secret")
        found = self.run(
            tmp_path, monkeypatch, "import os\nreturn ' '.join(os.environ) + ' '.join(os.environ.values())"
        )
        assert "MOONSHOT" not in found.pages[0].text
        assert "secret" not in found.pages[0].text

    def test_has_no_files_or_sockets_of_its_parent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ours = os.open("/dev/zero", os.O_RDONLY)
        os.set_inheritable(ours, True)
        try:
            code = "import os\nreturn ' '.join(sorted(os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)))"
            assert "zero" not in self.run(tmp_path, monkeypatch, code).pages[0].text
            code = f"import os\nos.fstat({ours})"
            (tmp_path / "second").mkdir()
            assert self.run(tmp_path / "second", monkeypatch, code).problem == "it is damaged"
        finally:
            os.close(ours)

    def test_has_little_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.run(tmp_path, monkeypatch, "return 'x' * 2_000_000_000")
        assert found.problem == "reading it needs too much memory"

    def test_writes_no_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        target = tmp_path / "written"
        found = self.run(tmp_path, monkeypatch, f"import pathlib\npathlib.Path({str(target)!r}).write_text('x')")
        assert found.problem == "it is damaged"
        assert not target.exists() or not target.read_bytes()


class TestTheCache:
    def test_the_same_document_is_read_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one, media = DocumentReader(), Media("file", data=as_base64(text_pdf("Once.")))
        first = one.read(media)
        monkeypatch.setattr(reader, "_pypdf_folder", lambda: None)
        assert one.read(media) is first
        one.close()

    def test_it_is_bounded(self) -> None:
        one = DocumentReader(cache_bytes=3000)
        for n in range(4):
            one.read(Media("file", data=as_base64(text_pdf(f"Number {n}."))))
        assert len(one._cache) == 2
        assert one._room >= 0
