"""Pages -> PDF files, small and well-formed, or made to harm whoever reads them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import Final

from pypdf import PdfReader, PdfWriter

__all__ = ["HOSTILE", "JPEG", "as_base64", "bomb", "encrypted", "scanned", "text_pdf", "write_pdf"]

JPEG: Final = base64.b64decode(
    "/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////"
    "////////wgALCAABAAEBAREA/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQABPxA="
)
"""A JPEG file of one pixel."""
PDF_TYPE: Final = "application/pdf"


def as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_pdf(objects: dict[int, bytes], *, root: int = 1) -> bytes:
    """A file of these objects, with the table of their places."""
    out, places = b"%PDF-1.4\n", dict[int, int]()
    for number, content in objects.items():
        places[number] = len(out)
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start, most = len(out), max(objects)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (most + 1)
    for number in range(1, most + 1):
        out += b"%010d 00000 %b \n" % (places.get(number, 0), b"n" if number in places else b"f")
    return out + b"trailer\n<< /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (most + 1, root, start)


def stream(data: bytes, head: bytes = b"") -> bytes:
    return b"<< %b /Length %d >>\nstream\n%b\nendstream" % (head, len(data), data)


def text_pdf(*pages: str) -> bytes:
    """A file whose pages have these lines of text."""
    return _pages([stream(_draw(text)) for text in pages])


def _draw(text: str) -> bytes:
    lines = text.encode("latin-1").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)").split(b"\n")
    return b"BT /F1 12 Tf 14 TL 72 720 Td " + b" T* ".join(b"(%b) Tj" % line for line in lines) + b" ET"


def _pages(contents: Iterable[bytes], resources: bytes = b"", more: dict[int, bytes] | None = None) -> bytes:
    """Pages of these content streams. Numbers: 1 catalogue, 2 page tree, 3 font, then a page and its content."""
    listed = list(contents)
    kids = b" ".join(b"%d 0 R" % (10 + 2 * n) for n in range(len(listed)))
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Count %d /Kids [%b] >>" % (len(listed), kids),
        3: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        **(more or {}),
    }
    for n, content in enumerate(listed):
        page, own = 10 + 2 * n, 11 + 2 * n
        objects[page] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> %b >> >>" % (own, resources)
        )
        objects[own] = content
    return write_pdf(dict(sorted(objects.items())))


def scanned(count: int = 1, image: bytes | None = None) -> bytes:
    """A file whose pages are one image, as scanners write them."""
    head = b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceRGB /BitsPerComponent 8"
    placed = image or stream(JPEG, head + b" /Filter /DCTDecode")
    drawn = stream(b"q 612 0 0 792 0 0 cm /Im1 Do Q")
    return _pages([drawn] * count, b"/XObject << /Im1 5 0 R >>", {5: placed})


def pixels(width: int, height: int, data: bytes, *, bits: int = 8, space: bytes = b"/DeviceRGB") -> bytes:
    """An image of pixels, compressed without loss."""
    head = b"/Type /XObject /Subtype /Image /Width %d /Height %d /BitsPerComponent %d /ColorSpace %b"
    return stream(zlib.compress(data), head % (width, height, bits, space) + b" /Filter /FlateDecode")


def encrypted(password: str = "secret") -> bytes:
    """A file that only opens with a password."""
    import io

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(text_pdf("Nobody reads this."))))
    writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def bomb(size: int = 120_000_000) -> bytes:
    """A page of a kilobyte or two that has 120 MB when it is decompressed, which takes two steps."""
    packer = zlib.compressobj(6)
    piece = b"(x) Tj " * 150_000
    once = b"".join(packer.compress(piece) for _ in range(size // len(piece))) + packer.flush()
    return _pages([stream(zlib.compress(once, 9), b"/Filter [/FlateDecode /FlateDecode]")])


def text_bomb(size: int = 12_000_000) -> bytes:
    """A page that draws the same letter millions of times: within the limits of a decompressor, and slow to read."""
    data = b"BT /F1 12 Tf 72 720 Td " + b"(x) Tj " * (size // 7) + b"ET"
    return _pages([stream(zlib.compress(data, 9), b"/Filter /FlateDecode")])


def page_tree_loop() -> bytes:
    """A page tree that contains itself."""
    return write_pdf(
        {
            1: b"<< /Type /Catalog /Pages 2 0 R >>",
            2: b"<< /Type /Pages /Count 2 /Kids [4 0 R 2 0 R] >>",
            4: b"<< /Type /Pages /Parent 2 0 R /Count 1 /Kids [2 0 R] >>",
        }
    )


def deep_nesting() -> bytes:
    """Lists in lists, a hundred thousand deep."""
    return write_pdf({1: b"<< /Type /Catalog /Pages 2 0 R /X %b >>" % (b"[" * 100_000), 2: b"<< /Type /Pages >>"})


HOSTILE: Final = {
    "a decompression bomb": (bomb, "reading it needs too much memory"),
    "a page tree that contains itself": (page_tree_loop, "it is damaged"),
    "lists in lists in lists": (deep_nesting, "it is damaged"),
    "a password": (encrypted, "it is encrypted"),
    "a file that is cut off": (lambda: text_pdf("Half of it.")[:200], "it is damaged"),
    "a file that is not a PDF": (lambda: b"PK\x03\x04 a Word document, perhaps", "it is not a PDF file"),
    "no data at all": (lambda: b"", "it is not a PDF file"),
    "10,000 pages": (lambda: text_pdf(*(f"Page {n}." for n in range(1, 10_001))), "only its first 100 pages are read"),
}
"""By name: a function that makes the file, and why it cannot be read completely."""
