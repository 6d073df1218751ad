"""Hooks of MkDocs: pages that are kept at the root of the repository, links out of docs/, and mermaid where it is used.

GitHub shows the same Markdown files as the site does, so their links are relative to the repository. The site has
only what is in docs/: a link to a page from the root is pointed at its copy, and any other link that leaves docs/
becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Files at the root -> the pages that they become."""
_FROM_ROOT: Final = {page: name for name, page in PAGES.items()}
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)
_CODE: Final = re.compile(r"(`+).+?\1")
_API: Final = "api/"
_DECISIONS: Final = "decisions/"
_CHINESE: Final = "zh/"
_FRONT: Final = "index.md"
_MERMAID: Final = "assets/mermaid/mermaid.tiny.js"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that live at the root of the repository."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site."""
    source = page.file.src_uri
    if source == _FRONT:
        page.meta["hide"] = ["navigation", "toc"]  # as front matter, GitHub would show it
    if source.startswith((_API, _DECISIONS)):
        page.meta["search"] = {"boost": 0.5}  # guides first: signatures repeat every word
    folder = "" if source in _FROM_ROOT else posixpath.dirname(f"docs/{source}")
    markdown = _ROW.sub(_unescape_pipes, markdown)
    return _LINK.sub(lambda found: _link(found, folder, source), markdown)


def _unescape_pipes(row: re.Match[str]) -> str:
    """GitHub requires a backslash before a pipe in the code of a table cell. Python-Markdown would show it."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


def _link(found: re.Match[str], folder: str, source: str) -> str:
    image, label, target = found.groups()
    path, mark, anchor = target.partition("#")
    if not path or "://" in target or target.startswith("mailto:"):
        return found[0]
    full = posixpath.normpath(posixpath.join(folder, path))
    inside = PAGES.get(full) or (full.removeprefix("docs/") if full.startswith("docs/") else None)
    if inside is None:
        return label
    return f"{image}[{label}]({posixpath.relpath(inside, posixpath.dirname(source) or '.')}{mark}{anchor})"


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Name the language of Chinese pages. Load mermaid (2.5 MB) only where there is a diagram, from the site itself."""
    if page.file.src_uri.startswith(_CHINESE):
        # Without it, browsers pick Japanese glyphs, and screen readers read it as English.
        output = output.replace('<html lang="en"', '<html lang="zh-CN"', 1)
    if 'class="mermaid"' not in output:
        return output
    script = posixpath.relpath(_MERMAID, posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace("</head>", f'<script defer src="{script}"></script></head>', 1)
