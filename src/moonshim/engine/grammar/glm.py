"""GLM-4.5 to GLM-5: text with `<tool_call>name<arg_key>` tags -> text and calls.

    call  = "<tool_call>" name { param } "</tool_call>"
    param = "<arg_key>" key "</arg_key>" "<arg_value>" value "</arg_value>"

GLM-4.5 puts each on a separate line, GLM-4.7 does not have to; a call may have no params. Values are raw text, typed by
the declared schema (see `raw_values`). A `<tool_call>` without a name or another tag after it is not a call: it is
reported, and what follows is text.
"""

from __future__ import annotations

from typing import Final

from moonshim.engine.grammar.shared.tag_patterns import TagPattern, chars, either, literal, row, space
from moonshim.engine.grammar.shared.tagged import TagFormat, TaggedGrammar, tag_sets

__all__ = ["GlmGrammar"]

_OPEN_CALL: Final = literal("<tool_call>")
_CLOSE_CALL: Final = literal("</tool_call>")
_OPEN_KEY: Final = literal("<arg_key>")
_OPEN_VALUE: Final = literal("<arg_value>")
_CLOSE_VALUE: Final = literal("</arg_value>")

_NAMED: Final = row(_OPEN_CALL, space(), chars(r"^\s<>{}\"'"))
_CALL: Final = TagPattern("call", _NAMED, either(_OPEN_KEY, _CLOSE_CALL), at_end=False)
_LOST: Final = TagPattern("lost", _OPEN_CALL, weak=True)
_END_CALL: Final = TagPattern("/call", _CLOSE_CALL)
_PARAM: Final = TagPattern("param", row(_OPEN_KEY, chars("^<>"), literal("</arg_key>"), space(), _OPEN_VALUE))
_STRAYS: Final = (_OPEN_KEY, literal("</arg_key>"), _OPEN_VALUE, _CLOSE_VALUE)


class GlmGrammar(TaggedGrammar):
    """Parses one text field of a GLM model.

    >>> grammar = GlmGrammar("text")
    >>> grammar.feed("<tool_call>ls\\n<arg_key>n</arg_key>\\n<arg_value>1")
    [CallStarted(channel='text', header='', name='ls', opened=True), CallDelta(text='{"n": ')]
    >>> grammar.feed("</arg_value></tool_call>")
    [CallDelta(text='1'), CallDelta(text='}'), CallEnded(closed=True)]
    """

    __slots__ = ()

    format = TagFormat(
        *tag_sets(
            outside=[_CALL, _LOST, _END_CALL],
            inside=[_CALL, _LOST, _END_CALL],
            in_call=[_CALL, _LOST, _END_CALL, _PARAM, *(TagPattern("/param", part, weak=True) for part in _STRAYS)],
            in_value=[
                TagPattern("/param", _CLOSE_VALUE),
                TagPattern("/call", _CLOSE_CALL, _OPEN_CALL),
                TagPattern("param", row(_OPEN_KEY, chars("^<>"), literal("</arg_key>"), space(), _OPEN_VALUE)),
            ],
        ),
        sections=False,
    )
