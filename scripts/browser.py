"""Finds the system's Chromium for the tests that need a browser, and installs it where that is possible.

Playwright's own browsers are a download of 150 MB from its maker; the system's is enough.
"""

from __future__ import annotations

import os
import shutil
from typing import Final

from scripts.environment import install_system_package

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC: Final = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
ARGUMENTS: Final = (
    "--no-sandbox",  # root, as in containers, cannot use it
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Options for a browser that only opens pages of the test and contacts nobody else."""


class NoBrowser(Exception):
    """There is no Chromium on this machine."""


def find_browser() -> str:
    """The path of Chromium or Chrome; `MOONSHIM_BROWSER` overrides it. Raises `NoBrowser`."""
    if chosen := os.environ.get("MOONSHIM_BROWSER"):
        return chosen
    for name in (*NAMES, MAC):
        if found := shutil.which(name):
            return found
    raise NoBrowser(
        "No Chromium found. Install it (Debian: apt-get install chromium) or set MOONSHIM_BROWSER to its path."
    )


def ensure_browser() -> str:
    """Like `find_browser`, but installs the Debian package first if there is no browser and apt-get may be used."""
    try:
        return find_browser()
    except NoBrowser:
        install_system_package("chromium")
        return find_browser()


if __name__ == "__main__":
    print(ensure_browser())
