"""MiniMax M2: text with `<minimax:tool_call>` tags -> text and calls.

    section = "<minimax:tool_call>" { call } "</minimax:tool_call>"
    call    = "<invoke name=" quoted ">" { param } "</invoke>"
    param   = "<parameter name=" quoted ">" value "</parameter>"

The quotes may be single or missing. Values are raw text, typed by the declared schema (see `raw_values`); they may
contain XML, so `</parameter>` ends one only before another tag of the call, or at the end of the text. Outside of a
section nothing is a call.
"""

from __future__ import annotations

from typing import Final

from moonshim.engine.grammar.shared.tag_patterns import TagPattern, attribute, either, literal, row, space
from moonshim.engine.grammar.shared.tagged import TagFormat, TaggedGrammar, tag_sets

__all__ = ["MinimaxGrammar"]

_OPEN_SECTION: Final = literal("<minimax:tool_call>")
_CLOSE_SECTION: Final = literal("</minimax:tool_call>")
_OPEN_CALL: Final = row(literal("<invoke "), space(4), attribute("name"), space(4), literal(">"))
_CLOSE_CALL: Final = literal("</invoke>")
_OPEN_PARAM: Final = row(literal("<parameter "), space(4), attribute("name"), space(4), literal(">"))
_CLOSE_PARAM: Final = literal("</parameter>")

_SECTIONS: Final = (TagPattern("section", _OPEN_SECTION), TagPattern("/section", _CLOSE_SECTION))
_CALLS: Final = (TagPattern("call", _OPEN_CALL), TagPattern("/call", _CLOSE_CALL))
_NEXT_CALL: Final = either(_CLOSE_SECTION, literal("<invoke "))


class MinimaxGrammar(TaggedGrammar):
    """Parses one text field of MiniMax M2.

    >>> grammar = MinimaxGrammar("text")
    >>> grammar.feed('<minimax:tool_call>\\n<invoke name="ls">\\n<parameter name="dir">/tmp</parameter>\\n</invoke>')
    [CallStarted(channel='text', header='', name='ls', opened=True), CallDelta(text='{"dir": '),
     CallDelta(text='"/tmp'), CallDelta(text='"'), CallDelta(text='}'), CallEnded(closed=True)]
    """

    __slots__ = ()

    format = TagFormat(
        *tag_sets(
            outside=_SECTIONS,
            inside=[*_SECTIONS, *_CALLS],
            in_call=[*_SECTIONS, *_CALLS, TagPattern("param", _OPEN_PARAM), TagPattern("/param", _CLOSE_PARAM)],
            in_value=[
                TagPattern("/param", _CLOSE_PARAM, either(literal("<parameter "), _CLOSE_CALL, _CLOSE_SECTION)),
                TagPattern("/call", _CLOSE_CALL, _NEXT_CALL),
                TagPattern("/section", _CLOSE_SECTION),
            ],
        )
    )
