"""The faults that no client survives without Moonshim, by name: the matrix shows for each of them that it breaks.

Faults that nobody can mend are not here: they end in an error with Moonshim and without it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BREAKS"]

BREAKS: Final = frozenset(
    {
        # leaks
        "markers-in-content",
        "markers-in-content-called",
        "markers-in-reasoning",
        "think-never-closed",
        "call-without-section",
        "call-without-section-in-reasoning",
        "section-without-end",
        "section-half",
        "calls-without-ends",
        "singular-section",
        "spaced-markers",
        "text-behind-markers",
        "text-among-markers",
        "two-sections",
        "markers-and-native",
        "markers-in-reasoning-and-native",
        "markers-half-native",
        "markers-in-lumps",
        "markers-by-character",
        "slot-number",
        "slot-call-number",
        "slot-call-hex",
        "slot-glued",
        "slot-no-colon",
        "slot-dots",
        "slot-no-number",
        "slot-name-colon",
        "slot-name-underscore",
        "slot-newline",
        "slot-white-space",
        "slot-call-hex-wrapped",
        "slot-call-hex-beside",
        "xtml-in-content",
        "xtml-in-content-called",
        "xtml-to-the-end",
        "xtml-without-end",
        "xtml-in-reasoning",
        "xtml-think-never-closed",
        "xtml-sep-elided",
        "xtml-spaced",
        "xtml-orphan-response-end",
        "xtml-orphan-response-end-in-content",
        "xtml-message-end-in-content",
        "xtml-response-in-content",
        "xtml-response-begun-in-content",
        "xtml-json",
        "xtml-and-native",
        "xtml-half-native",
        "xtml-in-lumps",
        "xtml-by-character",
        "xtml-undeclared",
        # ids
        "ids-fireworks-k3",
        "ids-said-again",
        "ids-same",
        "ids-empty",
        "ids-missing",
        "name-dotted",
        "name-underscored",
        "name-in-id",
        # arguments
        "arguments-encoded-twice",
        "arguments-nested-encoded",
        "arguments-behind-empty",
        # calls
        "missing-index",
        "shared-index",
        "repeated-header",
        "arguments-again",
        "arguments-again-in-finish",
        "role-in-each-chunk",
        # messages
        "input-as-text",
        # frames
        "no-event-lines",
        "json-lines",
        "not-streamed",
    }
)
