"""Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Step 3.5: text with `<function=name>` tags -> text and calls.

    section = "<tool_call>" { call } "</tool_call>"
    call    = "<function=" name ">" { param } "</function>"
    param   = "<parameter=" key ">" NL value NL "</parameter>"

Values are raw text, typed by the declared schema (see `raw_values`). They often contain source code or XML, so
`</parameter>` ends one only before another tag of the call, or at the end of the text; the other tags end it only where
they are unambiguous. The section is often missing: then a call needs a param or its own end after its name.
"""

from __future__ import annotations

from typing import Final

from moonshim.engine.grammar.shared.tag_patterns import TagPattern, chars, either, literal, row
from moonshim.engine.grammar.shared.tagged import TagFormat, TaggedGrammar, tag_sets

__all__ = ["QwenXmlGrammar"]

_OPEN_SECTION: Final = literal("<tool_call>")
_CLOSE_SECTION: Final = literal("</tool_call>")
_OPEN_CALL: Final = row(literal("<function="), chars(r"^<>\n"), literal(">"))
_CLOSE_CALL: Final = literal("</function>")
_OPEN_PARAM: Final = row(literal("<parameter="), chars(r"^<>\n"), literal(">"))
_CLOSE_PARAM: Final = literal("</parameter>")
_NEXT_CALL: Final = (_CLOSE_SECTION, _OPEN_SECTION, literal("<function="))
_NEXT_PARAM: Final = literal("<parameter=")

_SECTIONS: Final = (TagPattern("section", _OPEN_SECTION), TagPattern("/section", _CLOSE_SECTION))
_CALL: Final = TagPattern("call", _OPEN_CALL)
_BARE_CALL: Final = TagPattern("call", _OPEN_CALL, either(_NEXT_PARAM, _CLOSE_CALL), at_end=False)
_END_CALL: Final = TagPattern("/call", _CLOSE_CALL)
_PARAM: Final = TagPattern("param", _OPEN_PARAM)


class QwenXmlGrammar(TaggedGrammar):
    """Parses one text field of a model that writes Qwen's XML.

    >>> grammar = QwenXmlGrammar("text")
    >>> grammar.feed("Hi<tool_call>\\n<function=ls>\\n<parameter=dir>\\n/tm")
    [TextFound(channel='text', text='Hi'), CallStarted(channel='text', header='', name='ls', opened=True),
     CallDelta(text='{"dir": '), CallDelta(text='"/tm')]
    """

    __slots__ = ()

    format = TagFormat(
        *tag_sets(
            outside=[*_SECTIONS, _BARE_CALL],
            inside=[*_SECTIONS, _CALL, _END_CALL],
            in_call=[*_SECTIONS, _CALL, _END_CALL, _PARAM, TagPattern("/param", _CLOSE_PARAM)],
            in_value=[
                TagPattern("/param", _CLOSE_PARAM, either(_NEXT_PARAM, _CLOSE_CALL, _CLOSE_SECTION)),
                TagPattern("/call", _CLOSE_CALL, either(*_NEXT_CALL)),
                TagPattern("/section", _CLOSE_SECTION, _OPEN_SECTION),
                _PARAM,
            ],
        ),
        trims=True,
    )
