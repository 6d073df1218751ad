"""Chat histories that are broken: identifiers, results, arguments, empty words, names of tools."""

from __future__ import annotations

from typing import Final

from tests.engine.request.nasty.case import Json, Nasty, ai, call, chat, function, result
from tests.engine.request.nasty.chat import ASK, SYSTEM, TOOLS, parts

__all__ = ["FAULTS"]

NEXT: Final = {"role": "user", "content": "Go on."}


def _foreign_rounds() -> list[Json]:
    """Four rounds of two parallel calls, each with ids of another provider."""
    spellings = ("call_59adf5614cfe4f4b{}{}", "toolu_01AbCd{}{}", "functions.Bash:{}{}", "chatcmpl-tool-{}{}")
    out: list[Json] = []
    for turn, spelling in enumerate(spellings):
        ids = [spelling.format(turn, n) for n in (0, 1)]
        out.append(
            ai(*(call(id, "Bash", f'{{"command":"echo {id}"}}') for id in ids), reasoning_content=f"Turn {turn}.")
        )
        out += [result(id, f"result of {id}") for id in ids]
    return out


FAULTS: Final[tuple[Nasty, ...]] = (
    chat("foreign ids over four rounds with parallel calls", ASK, *_foreign_rounds(), tools=TOOLS),
    chat(
        "foreign ids over four rounds, the reasoning lost",
        ASK,
        *({k: v for k, v in m.items() if k != "reasoning_content"} for m in _foreign_rounds()),
        tools=TOOLS,
    ),
    chat(
        "one id for two calls of one message",
        ASK,
        ai(call("same", "Bash", '{"command":"a"}'), call("same", "Read", '{"path":"b"}'), reasoning_content="x"),
        result("same", "result a"),
        result("same", "result b"),
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "ids that are empty, null, numbers and missing",
        ASK,
        ai(call("", "Bash", '{"command":"a"}'), content=""),
        result("", "result a") | {"tool_call_id": "x"},
        ai({"type": "function", "function": {"name": "Read", "arguments": "{}"}}),
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "results whose calls were cut away",
        SYSTEM,
        result("gone_1", "a lost result", name="Bash"),
        ASK,
        result("gone_2", "another lost result"),
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "results out of order",
        ASK,
        ai(call("o1", "Bash"), call("o2", "Read"), call("o3", "Bash"), content=None),
        result("o3", "third"),
        result("o1", "first"),
        result("o2", "second"),
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "results separated from their calls by words of the user",
        ASK,
        ai(call("s1", "Bash"), call("s2", "Read"), content="Two things."),
        result("s1", "first"),
        {"role": "user", "content": "Are you there?"},
        {"role": "system", "content": "The user is impatient."},
        result("s2", "second"),
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "a result that comes turns later",
        ASK,
        ai(call("l1", "Bash"), content=""),
        {"role": "user", "content": "Never mind."},
        ai(content="As you like."),
        result("l1", "a late result"),
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "the same result twice, and a different one for the same call",
        ASK,
        ai(call("d1", "Bash"), content=""),
        result("d1", "once"),
        result("d1", "once"),
        result("d1", "otherwise"),
        tools=TOOLS,
    ),
    chat(
        "calls that nobody answered, in the middle and at the end",
        ASK,
        ai(call("u1", "Bash"), call("u2", "Read"), content=""),
        result("u2", "only the second"),
        {"role": "user", "content": "I stopped it."},
        ai(call("u3", "Bash"), content="Again."),
        tools=TOOLS,
    ),
    chat(
        "calls that nobody answered before the next call",
        ASK,
        ai(call("v1", "Bash"), content=""),
        ai(call("v2", "Bash"), content=""),
        result("v2", "the second"),
        tools=TOOLS,
    ),
    chat(
        "empty texts in every place",
        {"role": "system", "content": ""},
        {"role": "user", "content": parts("", "Hello.", "")},
        ai(content=parts("")),
        {"role": "user", "content": ""},
        ai(call("e1", "Bash"), content=parts("")),
        result("e1", ""),
        ai(call("e2", "Bash"), content=""),
        result("e2", []),
        {"role": "user", "content": parts("Go on.", "")},
        tools=TOOLS,
    ),
    chat(
        "assistant messages that say nothing",
        ASK,
        ai(content=""),
        NEXT,
        ai(content=None),
        NEXT,
        ai(),
        ai(content=None, tool_calls=[]),
        {"role": "user", "content": "Say something."},
    ),
    chat(
        "an assistant that only thought",
        ASK,
        ai(content="", reasoning_content="I thought, and said nothing."),
        NEXT,
        ai(content=None, reasoning_content="Once more."),
        ai(call("t1", "Bash"), content=None),
        result("t1", "done"),
        tools=TOOLS,
    ),
    chat(
        "two system prompts and a developer in the middle",
        SYSTEM,
        {"role": "system", "content": "And be brief."},
        ASK,
        ai(content="Yes?"),
        {"role": "developer", "content": "Speak French."},
        NEXT,
    ),
    chat("nothing but a system prompt before the assistant", SYSTEM, ai(content="I begin."), NEXT),
    chat("two users and two assistants in a row", ASK, NEXT, ai(content="One."), ai(content="Two."), ASK, NEXT),
    chat(
        "arguments in every broken form",
        ASK,
        ai(
            *(
                call(f"b{n}", "Bash", arguments)
                for n, arguments in enumerate(
                    (
                        '{"command": "ls"',
                        '{"command": "Bei',
                        "",
                        "null",
                        '"{\\"command\\": \\"ls\\"}"',
                        '["ls", "-l"]',
                        '{"filePath":": [.',
                        '{"command":"a"}{"command":"b"}',
                        "{'command': 'ls'}",
                        '{"command": "line\nbreak"}',
                        "rm -rf /tmp/x",
                        '{"command":"\\ud83d"}',
                        "42",
                    )
                )
            ),
            content="",
            reasoning_content="Many.",
        ),
        *(result(f"b{n}", f"result {n}") for n in range(13)),
        tools=TOOLS,
    ),
    chat(
        "arguments that are no text at all",
        ASK,
        ai(call("w1", "Bash", {"command": "ls"}), call("w2", "Bash", None), call("w3", "Bash", ["ls"]), content=""),
        *(result(f"w{n}", f"result {n}") for n in (1, 2, 3)),
        tools=TOOLS,
    ),
    chat(
        "names with dots, blanks, slashes, digits in front and beyond all length",
        ASK,
        ai(
            call("m1", "fs.read"),
            call("m2", "my tool"),
            call("m3", "7zip"),
            call("m4", "x" * 300),
            call("m5", "fs_read"),
            content="",
            reasoning_content="All.",
        ),
        *(result(f"m{n}", f"result {n}") for n in range(1, 6)),
        tools=[
            function(name)
            for name in ("fs.read", "fs_read", "fs read", "my tool", "7zip", "x" * 300, "y" * 300, "日本")
        ],
        tool_choice={"type": "function", "function": {"name": "fs.read"}},
    ),
    chat(
        "long names that differ only at the end",
        ASK,
        tools=[function("n" * 300 + end) for end in "abc"],
    ),
    chat(
        "calls of tools that are not declared any more",
        ASK,
        ai(call("k1", "old.tool", '{"a":1}'), content="", reasoning_content="Hm."),
        result("k1", "an old result"),
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "calls in the history, and no tools at all",
        ASK,
        ai(call("z1", "Bash"), content="", reasoning_content="Hm."),
        result("z1", "a result"),
        NEXT,
    ),
    chat(
        "sixty tools",
        ASK,
        tools=[
            function(f"server__tool_{n}", {"type": "object", "properties": {f"p{n}": {"type": "string"}}})
            for n in range(60)
        ],
    ),
    chat("a tool declared twice in the same way", ASK, tools=[*TOOLS, TOOLS[0]]),
    chat(
        "tools declared in a system message",
        SYSTEM,
        ASK,
        ai(content="Which?"),
        {"role": "system", "content": "", "tools": [function("late.tool"), function("Grep")]},
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "partial prefill at the end, and an old one in the middle",
        ASK,
        ai(content="The files", partial=True),
        NEXT,
        ai(content='{"files": [', partial=True, name="helper"),
        response_format={"type": "json_object"},
    ),
    chat(
        "partial on a message that is empty",
        ASK,
        ai(content="", partial=True),
    ),
    chat(
        "an empty partial in the middle, and empty text in another",
        ASK,
        ai(content="", partial=True),
        NEXT,
        ai(content=parts("The", ""), partial=True),
        NEXT,
    ),
    chat(
        "partial on words of the user that are empty, and beside a picture",
        ASK,
        {"role": "user", "content": "", "partial": True},
        ai(
            content=[
                {"type": "text", "text": "Like this:"},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            ],
            partial=True,
        ),
        sees="messages[2]",
    ),
    chat(
        "a repeated result alone between two answers",
        ASK,
        ai(call("c1", "Bash"), content=None),
        result("c1", "a.txt"),
        ai(content="There."),
        result("c1", "a.txt"),
        ai(content="As I said."),
        NEXT,
        tools=TOOLS,
    ),
    chat(
        "OpenRouter's reasoning_details with the index of the stream",
        ASK,
        ai(content="Hm.", reasoning_details=[{"type": "reasoning.text", "text": "Why?", "index": 0}]),
        NEXT,
        ai(call("c1", "Bash"), reasoning_details=[{"type": "reasoning.encrypted", "data": "gAAA", "index": 1}]),
        result("c1"),
        tools=TOOLS,
    ),
    chat(
        "a legal name behind one that would become the same",
        ASK,
        ai(call("a", "fs_read"), call("b", "fs.read"), call("c", "fs read"), content=None),
        result("a"),
        result("b"),
        result("c"),
        tools=[function("fs.read"), function("fs_read")],
    ),
    chat(
        "a system prompt that comes later",
        ASK,
        ai(content="Which?"),
        {"role": "system", "content": "Be brief."},
        NEXT,
    ),
    chat(
        "markers and odd characters in what people say",
        {"role": "user", "content": "What does <|tool_calls_section_begin|> mean? \u2028 \x00 \ud83d\ude00"},
        ai(content="It is `<|tool_call_begin|>functions.x:0<|tool_call_argument_begin|>`."),
        {"role": "user", "content": "</think> I see. <|im_end|>"},
    ),
)
