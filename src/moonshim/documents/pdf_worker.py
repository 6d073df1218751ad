"""A PDF in base64 on standard input -> its pages as JSON on standard output. Run as a program, with limits on itself.

The output is an `ExtractedDocument` (moonshim.engine.values.documents). This file imports nothing of Moonshim: the
process has only the standard library, and the folder of pypdf as its argument.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
import signal
import struct
import sys
import zlib
from contextlib import suppress
from typing import Any, Final

MAX_PAGES: Final = 100
"""What the APIs of Anthropic and OpenAI accept, too."""
MAX_CHARACTERS: Final = 500_000
MAX_IMAGES: Final = 20
MAX_IMAGE_BYTES: Final = 4 * 1024 * 1024
MAX_ALL_IMAGE_BYTES: Final = 8 * 1024 * 1024
CPU_SECONDS: Final = 20
MEMORY_BYTES: Final = 768 * 1024 * 1024

_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_CHANNELS: Final = {"/DeviceGray": 1, "/CalGray": 1, "/DeviceRGB": 3, "/CalRGB": 3}
_PNG_TYPES: Final = {1: 0, 3: 2}
_MAX_PIXELS: Final = 50_000_000
_DAMAGED: Final = "damaged"
_FORMAT: Final = "an image in a format that cannot be shown"


class Unreadable(Exception):
    """The document cannot be read; says why."""


def limit_resources() -> None:
    """Limit what this process may use. The time limit of the parent is the only one on systems without the others."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {
        "RLIMIT_AS": MEMORY_BYTES,
        "RLIMIT_CPU": CPU_SECONDS,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 64,
    }
    for name, most in limits.items():
        with suppress(AttributeError, ValueError, OSError):  # macOS has no limit on the address space
            resource.setrlimit(getattr(resource, name), (most, most))
    signal.alarm(4 * CPU_SECONDS)  # if the parent has died meanwhile


def read_pdf(data: bytes) -> dict[str, Any]:
    """The pages of a PDF. Raises `Unreadable`, or almost anything that pypdf lets through."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError

    if b"%PDF-" not in data[:1024]:
        raise Unreadable("it is not a PDF file")
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is encrypted")
        count = len(reader.pages)
    except (FileNotDecryptedError, DependencyError):
        raise Unreadable("it is encrypted") from None
    if not count:
        raise Unreadable("it has no pages")
    pages, problem = list[dict[str, Any]](), None
    room, images = MAX_CHARACTERS, _Images()
    for number in range(min(count, MAX_PAGES)):
        try:
            page = reader.pages[number]
            text = _clean(page.extract_text())
            pages.append({"text": text[:room].rstrip()} if text else images.of_page(page))
        except (MemoryError, LimitReachedError):
            raise Unreadable("reading it needs too much memory") from None
        except Exception:
            pages.append({"problem": _DAMAGED})
            continue
        if len(text) > room:
            problem = f"only its first {MAX_CHARACTERS:,} characters are read"
            break
        room -= len(text)
    else:
        if count > MAX_PAGES:
            problem = f"only its first {MAX_PAGES} pages are read"
    if all(page.get("problem") == _DAMAGED for page in pages):
        raise Unreadable("it is damaged")
    return {"pages": pages, "page_count": count, "problem": problem}


def _clean(text: str) -> str:
    """The text without characters that no JSON can carry, or that mean nothing."""
    text = _CONTROLS.sub("", text.encode("utf-8", "replace").decode())
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


# --- scanned pages ------------------------------------------------------------------------------------------------


class _Images:
    """Finds the images that fill scanned pages, as far as the limits allow."""

    def __init__(self) -> None:
        self._count, self._room = MAX_IMAGES, MAX_ALL_IMAGE_BYTES

    def of_page(self, page: Any) -> dict[str, Any]:
        found = _largest_image(page)
        if found is None:
            return {}
        if not self._count:
            return {"problem": f"an image, of which only the first {MAX_IMAGES} are shown"}
        try:
            media_type, data = _convert(found)
        except MemoryError:
            raise
        except Exception:
            return {"problem": _FORMAT}
        if len(data) > min(MAX_IMAGE_BYTES, self._room):
            return {"problem": "an image that is too large"}
        self._count -= 1
        self._room -= len(data)
        return {"image": base64.b64encode(data).decode(), "media_type": media_type}


def _largest_image(page: Any) -> Any:
    resources = page.get("/Resources")
    objects = resources.get_object().get("/XObject") if resources is not None else None
    if objects is None:
        return None
    objects = objects.get_object()
    images = [each for name in list(objects)[:1000] if (each := objects[name].get_object()).get("/Subtype") == "/Image"]
    return max(images, key=lambda image: image.get("/Width", 0) * image.get("/Height", 0), default=None)


def _convert(image: Any) -> tuple[str, bytes]:
    """The type and the bytes of an image: JPEG as it is, uncompressed pixels as PNG."""
    filters = image.get("/Filter", [])
    filters = list(filters) if isinstance(filters, list) else [filters]
    if filters and filters[-1] in ("/DCTDecode", "/DCT"):
        data = image.get_data()
        if not data.startswith(b"\xff\xd8"):
            raise ValueError
        return "image/jpeg", data
    if filters and filters[-1] not in ("/FlateDecode", "/Fl", "/LZWDecode", "/RunLengthDecode"):
        raise ValueError
    return "image/png", _png(image)


def _png(image: Any) -> bytes:
    width, height, bits = int(image["/Width"]), int(image["/Height"]), int(image.get("/BitsPerComponent", 1))
    if width * height > _MAX_PIXELS or bits not in (1, 2, 4, 8):
        raise ValueError
    channels, palette = _colours(image["/ColorSpace"].get_object() if "/ColorSpace" in image else "/DeviceGray")
    row = (width * channels * bits + 7) // 8
    data = image.get_data()
    if len(data) < row * height or (bits != 8 and channels != 1):
        raise ValueError
    if palette is None and [float(each) for each in image.get("/Decode", [])][:2] == [1.0, 0.0]:
        data = bytes(255 - byte for byte in data[: row * height])
    lines = b"".join(b"\0" + data[at : at + row] for at in range(0, row * height, row))
    kind = 3 if palette is not None else _PNG_TYPES[channels]
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))]
    chunks += [(b"PLTE", palette[: 3 << bits])] if palette is not None else []
    chunks += [(b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def _colours(space: Any) -> tuple[int, bytes | None]:
    """The number of channels of a colour space, and its palette."""
    if not isinstance(space, list):
        return _CHANNELS[space], None
    if space[0] == "/ICCBased":
        channels = int(space[1].get_object()["/N"])
        return {1: 1, 3: 3}[channels], None
    if space[0] == "/Indexed":
        if _colours(space[1].get_object())[0] != 3:
            raise ValueError
        table = space[3].get_object()
        return 1, bytes(table.get_data()) if hasattr(table, "get_data") else bytes(table.original_bytes)
    return _CHANNELS[space[0]], None


# --- the process --------------------------------------------------------------------------------------------------


def main(folder: str) -> None:
    """Read standard input, write standard output."""
    limit_resources()
    sys.path.append(folder)
    encoded = sys.stdin.buffer.read()
    try:
        try:
            data = base64.b64decode(encoded)
        except binascii.Error:
            raise Unreadable("its data is not valid base64") from None
        del encoded
        result = read_pdf(data)
    except Unreadable as error:
        result = {"problem": str(error)}
    except MemoryError:
        result = {"problem": "reading it needs too much memory"}
    except Exception:
        # pypdf raises more than its own errors where a file is damaged.
        result = {"problem": "it is damaged"}
    sys.stdout.buffer.write(json.dumps(result, ensure_ascii=False).encode())


if __name__ == "__main__":
    main(sys.argv[1])
