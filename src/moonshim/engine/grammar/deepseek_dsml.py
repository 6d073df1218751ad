"""DeepSeek V3.2, V4 and V4.1 (DSML): text with `<｜DSML｜invoke name="…">` tags -> text and calls.

    section = "<｜DSML｜" block ">" { call } "</｜DSML｜" block ">"
    block   = "function_calls" (V3.2) | "tool_calls" (V4) | " calls" (V4.1)
    call    = "<｜DSML｜invoke name=" quoted ">" ( { param } | object ) "</｜DSML｜invoke>"
    param   = "<｜DSML｜parameter name=" quoted " string=" ( '"true"' | '"false"' ) ">" value "</｜DSML｜parameter>"

V4.1 has a space after every `｜DSML｜`; some hosts write the bars as `|`. A value with string="true" is raw text, with
string="false" it is JSON; without the attribute the declared schema decides (see `raw_values`).
"""

from __future__ import annotations

from typing import Final

from moonshim.engine.grammar.shared.tag_patterns import TagPart, TagPattern, attribute, either, literal, row, space
from moonshim.engine.grammar.shared.tagged import TagFormat, TaggedGrammar, tag_sets

__all__ = ["DeepseekDsmlGrammar"]

_BAR: Final = either(literal("｜"), literal("|"))
_BLOCK: Final = either(literal("function_calls"), literal("tool_calls"), literal("calls"))
_END: Final = row(space(4), literal(">"))


def _open(*parts: TagPart) -> TagPart:
    return row(literal("<"), _BAR, literal("DSML"), _BAR, space(4), *parts)


def _close(*parts: TagPart) -> TagPart:
    return row(literal("</"), _BAR, literal("DSML"), _BAR, space(4), *parts, _END)


_NAME: Final = (space(4), attribute("name"))
_STRING: Final = row(space(4), attribute("string"), _END)
_TAGS: Final = (
    TagPattern("section", _open(_BLOCK, _END)),
    TagPattern("/section", _close(_BLOCK)),
    TagPattern("call", _open(literal("invoke"), *_NAME, _END)),
    TagPattern("/call", _close(literal("invoke"))),
    TagPattern("param", _open(literal("parameter"), *_NAME, either(_STRING, _END))),
    TagPattern("/param", _close(literal("parameter"))),
)


class DeepseekDsmlGrammar(TaggedGrammar):
    """Parses one text field of a DeepSeek model that writes DSML. Such tags never occur by chance: all are parsed.

    >>> grammar = DeepseekDsmlGrammar("text")
    >>> grammar.feed('<｜DSML｜invoke name="ls"><｜DSML｜parameter name="dir" string="true">/tm')
    [CallStarted(channel='text', header='', name='ls', opened=True), CallDelta(text='{"dir": "'), CallDelta(text='/tm')]
    """

    __slots__ = ()

    format = TagFormat(*tag_sets(outside=_TAGS, inside=_TAGS, in_call=_TAGS, in_value=_TAGS), objects=True)
