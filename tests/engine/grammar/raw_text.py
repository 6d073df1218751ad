"""The families whose values are raw text: what the laws need to know of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st
from msgspec import Struct

from moonshim.engine.grammar.protocol import Channel, Grammar
from tests.engine.grammar.family_runs import Vector, grammar_of

TOOLS: Final = ("ls", "put", "mixed")
FRAGMENTS: Final = [
    "<",
    "</",
    ">",
    "|",
    "=",
    " ",
    "\n",
    '"',
    "'",
    "\\",
    "{",
    "}",
    "[",
    ":",
    ",",
    "x",
    "é",
    "💥",
    "\x00",
]
SPEECH: Final = st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join)


class RawFamily(Struct, frozen=True):
    """What the texts of one family are made of."""

    pieces: tuple[str, ...]
    """Tags and their like; `Q` is the letter that is counted."""
    halves: tuple[str, ...]
    """What only begins like a tag, or is none by itself; no others complete it."""
    string: str
    """What stands before the value of a string."""
    work: dict[str, Callable[[int], str]]
    """Texts that grow."""

    @property
    def soup(self) -> st.SearchStrategy[str]:
        """Tags and text in any order."""
        return st.lists(st.sampled_from(["Q", "Q Q", "1", "true", *FRAGMENTS, *self.pieces]), max_size=24).map("".join)

    @property
    def speech(self) -> st.SearchStrategy[str]:
        return st.lists(st.sampled_from([*FRAGMENTS, *self.halves]), max_size=20).map("".join)


def raw_grammar(family: str, channel: Channel = "text", *, calls: bool = True) -> Grammar:
    return grammar_of(family, Vector("", "", [], TOOLS, channel, calls))


_THINK: Final = ("<think>", "</think>")
_DSML: Final = '<｜DSML｜invoke name="put">'
_GEMMA: Final = "<|tool_call>call:put"
_GEMMA_TEXT: Final = f'{_GEMMA}{{a:<|"|>'
_GLM: Final = "<tool_call>put\n<arg_key>{}</arg_key>\n<arg_value>"
_MINIMAX: Final = '<minimax:tool_call><invoke name="put">'
_QWEN, _QWEN_END = "<tool_call>\n<function=put>\n", "</function>\n</tool_call>"

RAW_FAMILIES: Final = {
    "deepseek_dsml": RawFamily(
        pieces=(
            "<｜DSML｜tool_calls>",
            "</｜DSML｜tool_calls>",
            "<｜DSML｜ calls>",
            "<｜DSML｜function_calls>",
            _DSML,
            "<｜DSML｜ invoke name=Q>",
            "</｜DSML｜invoke>",
            "</｜DSML｜ invoke>",
            "</｜DSML｜parameter>",
            '<｜DSML｜parameter name="text" string="true">',
            '<｜DSML｜parameter name="Q" string="false">',
            '<|DSML|parameter name="list">',
            "<｜DSML｜",
            '{"Q": 1}',
            '["Q',
            *_THINK,
        ),
        # A whole name could be completed by the other pieces.
        halves=("<｜DSML｜", "<｜DSML｜invok", "</｜DSML｜param"),
        string=_DSML + '<｜DSML｜parameter name="a" string="true">',
        work={
            "speech": lambda count: "a < b <｜DSML｜ " * count,
            "half a tag": lambda count: '<｜DSML｜invoke name="x' * count,
            "a long string": lambda count: (
                _DSML + '<｜DSML｜parameter name="a" string="true">' + "<b></｜DSML｜x " * count
            ),
            "a long object": lambda count: _DSML + "{" + '"a": "<", < ' * count,
            "many calls": lambda count: (_DSML + "</｜DSML｜invoke>\n") * count,
        },
    ),
    "gemma": RawFamily(
        pieces=(
            *("<|tool_call>", "<tool_call|>", _GEMMA, "<start_function_call>", "<end_function_call>"),
            *("call:", "call:ls{", "put{", '<|"|>', "<escape>", f'{_GEMMA}{{text:<|"|>', "Q:", "list:[", "null"),
            *("-1.5", ",Q:{", "<|channel>", "thought\n", "<channel|>", "</tool_call>", "<|", "cal"),
        ),
        halves=("<|tool_cal", "call:", "call:lst", "cal", "<|chan"),
        string=_GEMMA_TEXT,
        work={
            "speech": lambda count: "a < b <|tool_cal call:l c " * count,
            "a long string": lambda count: _GEMMA_TEXT + '<|"| x' * count,
            "a long scalar": lambda count: f"{_GEMMA}{{a:" + "x < y " * count,
            "a long key": lambda count: f"{_GEMMA}{{" + "x < y " * count,
            "many values": lambda count: f"{_GEMMA}{{a:[" + "1, {b:2}, " * count,
            "depth": lambda count: f"{_GEMMA}{{a:" + "[{b:" * count,
            "many calls": lambda count: f"{_GEMMA}{{}}<tool_call|>\n" * count,
        },
    ),
    "glm": RawFamily(
        pieces=(
            *("<tool_call>", "</tool_call>", "<tool_call>ls", "<tool_call>put\n", "<arg_key>", "</arg_key>"),
            *("<arg_value>", "</arg_value>", "<arg_key>dir</arg_key>", _GLM.format("list"), _GLM.format("Q")),
            *(_GLM.format("count"), '["Q', '{"Q": ', *_THINK),
        ),
        halves=("<arg_key>", "</arg_value>", "<tool_cal"),
        string=_GLM.format("text"),
        work={
            "speech": lambda count: "a < b <tool_cal " * count,
            "names": lambda count: "<tool_call>a b " * count,
            "a long string": lambda count: _GLM.format("text") + "<b> </tool_call> " * count,
            "a long value of unknown kind": lambda count: _GLM.format("k") + "[1, " * count,
            "many calls": lambda count: (_GLM.format("count") + "1</arg_value></tool_call>") * count,
            "keys without values": lambda count: "<tool_call>put<arg_key>" + "<arg_key>k</arg_key>" * count,
        },
    ),
    "minimax": RawFamily(
        pieces=(
            *("<minimax:tool_call>", "</minimax:tool_call>", _MINIMAX, "<invoke name=Q>", "</invoke>"),
            *("</parameter>", '<parameter name="text">', "<parameter name=count>", '<parameter name="list">'),
            *("<parameter name=Q>", '["Q', *_THINK),
        ),
        halves=("<minimax:", "<invoke name=", "</parameter>"),
        string=_MINIMAX + "<parameter name=text>",
        work={
            "speech": lambda count: "a < b <minimax: " * count,
            "a long string": lambda count: _MINIMAX + "<parameter name=text>" + "<b></parameter> " * count,
            "many calls": lambda count: (_MINIMAX + "</invoke></minimax:tool_call>\n") * count,
        },
    ),
    "qwen_xml": RawFamily(
        pieces=(
            *("<tool_call>", "</tool_call>", "<function=ls>", "<function=put>", "<function=Q>", "</function>"),
            *("</parameter>", "<parameter=dir>", "<parameter=most>", "<parameter=list>", "<parameter=k>"),
            *("\n<parameter=text>", '["Q', '{"Q": ', *_THINK, "<parameter=", "</tool_call>\n<tool_call>"),
        ),
        halves=("<tool_cal", "<function", "=x>"),
        string=f"{_QWEN}<parameter=text>",
        work={
            "speech": lambda count: "a < b <tool_cal " * count,
            "bare names": lambda count: "<function=x> <function=y>\n" * count,
            "a long string": lambda count: f"{_QWEN}<parameter=text>" + "<b>\n</parameter> " * count,
            "a long array": lambda count: f"{_QWEN}<parameter=list>[" + '1, "<b>", <' * count,
            "a long value of unknown kind": lambda count: f"{_QWEN}<parameter=k>[" + "1, " * count,
            "a long number": lambda count: f"{_QWEN}<parameter=count>" + "1234" * count,
            "many params": lambda count: _QWEN + "<parameter=k>1</parameter>\n" * count,
            "many calls": lambda count: (_QWEN + _QWEN_END) * count,
            "white space": lambda count: _QWEN + " \n" * count,
        },
    ),
}
