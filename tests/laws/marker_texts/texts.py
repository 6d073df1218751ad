# ruff: noqa: E501, RUF001  - texts as they are, also in other scripts
"""Texts that only talk about markers, as a model writes them for a person: none of them contains a call to run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Final

from tests.laws.marker_texts.calls import TOOLS, MarkedCall, Markers, Spelling, write
from tests.laws.marker_texts.cases import Case
from tests.laws.marker_texts.quotations import MODELS
from tests.support.exchanges import CLIENTS, WHOLE, Conversation, Response, System, User

HOSTS: Final = ("generic", "vllm", "sglang", "moonshot", "openrouter", "fireworks")

# --- quoted calls ---------------------------------------------------------------------------------------------------

_QUOTED: Final[tuple[tuple[Markers, tuple[MarkedCall, ...], Spelling], ...]] = (
    ("k2", (MarkedCall("get_weather", {"city": "Paris"}),), Spelling()),
    ("k2", (MarkedCall("Bash", {"command": "git log --oneline | head -5"}),), Spelling(gap="\n")),
    ("k2", (MarkedCall("Read", {"path": "a.py"}), MarkedCall("Read", {"path": "b.py"}, 1)), Spelling(section=False)),
    ("k2", (MarkedCall("write_file", {"path": "a.md", "content": "`x`\n```\ny\n```\n"}),), Spelling(indent=2)),
    ("k2", (MarkedCall("foo", {}),), Spelling(prefix="")),
    ("k2", (MarkedCall("Bash", {"command": "ls"}),), Spelling(part="open")),
    ("k3", (MarkedCall("get_weather", {"city": "Paris", "unit": "celsius"}),), Spelling()),
    (
        "k3",
        (MarkedCall("Bash", {"command": "make test"}), MarkedCall("list_files", {"path": "."}, 1)),
        Spelling(gap="\n"),
    ),
    ("k3", (MarkedCall("Read", {"path": "a.py", "offset": 3}),), Spelling(section=False)),
    ("k3", (MarkedCall("list_files", {}),), Spelling()),
)
"""Calls, most of them of tools that a request declares."""


def _prefixed(text: str, before: str) -> str:
    return "\n".join(before + line for line in text.split("\n"))


def _quoting(quoted: str) -> Iterator[tuple[str, str]]:
    """A call inside code or quotes, in an answer."""
    yield "fence", f"A call looks like this:\n\n```\n{quoted}\n```\n\nThe parser reads it up to the end marker."
    yield "fence at the end", f"This is how it's written:\n\n```text\n{quoted}\n```"
    yield "tilde fence", f"For instance:\n\n~~~xml\n{quoted}\n~~~\n"
    inner = f"````\n{quoted}\n````" if "```" in quoted else f"```\n{quoted}\n```"
    yield (
        "nested fence",
        f"Put this into `docs/calls.md`:\n\n`````markdown\n# Calls\n\n{inner}\n\nDone.\n`````\nThat's it.",
    )
    yield (
        "fence in a list",
        f"1. The model writes:\n\n   ```\n{_prefixed(quoted, '   ')}\n   ```\n\n2. The host parses it.",
    )
    literal = json.dumps(quoted, ensure_ascii=False)
    yield (
        "string in a test",
        f"```python\ndef test_it() -> None:\n    assert parse({literal}) == [CALL]\n```\nIt's enough.",
    )
    if "\n" not in quoted and "`" not in quoted:
        yield "inline", f"The raw output is `{quoted}`, and nothing's behind it."
        yield "inline, Chinese", f"模型的原始输出是 `{quoted}`，解析器不应该执行它。"
        yield "double backticks", f"The text ``{quoted}`` isn't a call; it's an example of `one`."
        yield "table", f"| step | text |\n|---|---|\n| 1 | `{quoted}` |\n| 2 | the result |\n"
        yield "list", f"- before: `{quoted}`\n- after: a native call\n\nDon't forget the id."
        yield "quotes", f'He asked what "{quoted}" means, and it\'s an example.'
    if "\n" not in quoted:
        yield (
            "diff",
            f"```diff\n--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-    TEXT = ''\n+    TEXT = {literal}\n```\n\nThat's all.",
        )
        yield "log", f"The log shows:\n\n```\n10:00:01 DEBUG raw={quoted}\n10:00:02 INFO done\n```\nIt's from vLLM."
        yield "shell", f"```sh\n$ grep -c '' out.txt\n1\n$ cat out.txt\n{quoted}\n```\n"


# --- lists of tokens, code, documentation ---------------------------------------------------------------------------

_K2: Final = {
    "tool_calls_section_begin": 163595,
    "tool_calls_section_end": 163596,
    "tool_call_begin": 163597,
    "tool_call_argument_begin": 163598,
    "tool_call_end": 163599,
}
_K3: Final = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
_CONSTANTS: Final = {name.upper(): f"<|{name}|>" for name in _K2}
_XTML: Final = {name[2:-2].upper(): name for name in _K3}


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _lists() -> Iterator[tuple[str, str]]:
    for label, constants in (("k2", _CONSTANTS), ("k3", _XTML)):
        rows = constants.items()
        languages = {
            "python": "\n".join(f'{name}: Final = "{token}"' for name, token in rows),
            "py": "MARKERS = [\n" + "".join(f"    '{token}',\n" for token in constants.values()) + "]",
            "ts": "\n".join(f'export const {name} = "{token}" as const;' for name, token in rows),
            "js": "const markers = new Set([" + ", ".join(f"'{token}'" for token in constants.values()) + "]);",
            "rust": "\n".join(f'const {name}: &str = "{token}";' for name, token in rows),
            "go": "const (\n" + "".join(f'\t{name} = "{token}"\n' for name, token in rows) + ")",
            "cpp": "\n".join(f'static const std::string {name} = "{token}";' for name, token in rows),
            "yaml": "tokens:\n" + "\n".join(f'  - "{token}"' for token in constants.values()),
            "toml": "\n".join(f'{name.lower()} = "{token}"' for name, token in rows),
            "json": json.dumps(list(constants.values()), indent=2),
            "sh": "\n".join(f"export {name}='{token}'" for name, token in rows),
        }
        for language, code in languages.items():
            yield (
                f"{label} constants, {language}",
                f"These are the markers:\n\n{_fence(language, code)}\n\nDon't change them.",
            )
        for language in ("python", "ts", "rust", "json", "yaml"):
            yield f"{label} constants, {language} without a fence", languages[language] + "\n"
        tokens = list(constants.values())
        yield f"{label} bullets", "The markers:\n\n" + "".join(f"- `{token}`\n" for token in tokens) + "\nThat's all."
        rows_of_table = "".join(f"| `{token}` | {name.lower()} |\n" for name, token in rows)
        yield f"{label} table", f"| token | name |\n|---|---|\n{rows_of_table}\nIt's complete."
        yield f"{label} sentence", "It uses " + ", ".join(f"`{token}`" for token in tokens) + ", doesn't it?"
        yield f"{label} in quotes", "It uses " + ", ".join(f'"{token}"' for token in tokens) + " and no others."
        yield f"{label} one in a fence", f"```\n{tokens[0]}\n```\nopens it, and\n```\n{tokens[-1]}\n```\ncloses it."
    added = [{"id": number, "content": f"<|{name}|>", "special": False} for name, number in _K2.items()]
    config = {"added_tokens_decoder": {str(one["id"]): one for one in added}, "model_max_length": 262144}
    text = json.dumps(config, indent=2)
    yield "tokenizer_config.json", f"In `tokenizer_config.json`:\n\n{_fence('json', text)}\n\nThey aren't special."
    yield "tokenizer_config.json without a fence", text
    special = {"additional_special_tokens": ["<|im_end|>", "<|im_user|>", *_CONSTANTS.values(), "[EOS]"]}
    yield "special_tokens_map.json", f"It's\n\n{_fence('json', json.dumps(special, indent=1))}\n"
    think = {
        "163606": {"content": "<think>"},
        "163607": {"content": "</think>"},
        "163597": {"content": "<|tool_call_begin|>"},
    }
    yield "with think tags", f"Look at these:\n\n{_fence('json', json.dumps(think, indent=2))}\n\nThey're ordinary."
    yield (
        "think tags in a sentence",
        "A model writes `<think>`, its thoughts and `</think>`, then `<|tool_call_begin|>`.",
    )


_CODE: Final[dict[str, tuple[str, str]]] = {
    "regex": (
        "python",
        (
            'CALL = re.compile(\n    r"<\\|tool_call_begin\\|>\\s*(?P<id>[\\w.]+:\\d+)\\s*<\\|tool_call_argument_begin\\|>"\n'
            '    r"\\s*(?P<arguments>.*?)\\s*<\\|tool_call_end\\|>",\n    re.DOTALL,\n)'
        ),
    ),
    "regex of unescaped markers": (
        "python",
        (
            'SECTION = r"<|tool_calls_section_begin|>(.*?)<|tool_calls_section_end|>"\n'
            'CALL = r"<|tool_call_begin|>(.*?)<|tool_call_argument_begin|>(.*?)<|tool_call_end|>"'
        ),
    ),
    "regex in JavaScript": ("js", "const call = /<\\|tool_call_begin\\|>([\\s\\S]*?)<\\|tool_call_end\\|>/g;"),
    "regex of K3": (
        "python",
        'TAG = re.compile(r"<\\|(open|close)\\|>(\\w+)(.*?)<\\|sep\\|>")\nEND = "<|end_of_msg|>"',
    ),
    "Jinja template": (
        "jinja",
        (
            "{%- if message.tool_calls -%}<|tool_calls_section_begin|>{%- for call in message.tool_calls -%}"
            "<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{{ call.function.arguments | tojson }}"
            "<|tool_call_end|>{%- endfor -%}<|tool_calls_section_end|>{%- endif -%}<|im_end|>"
        ),
    ),
    "Jinja template over lines": (
        "jinja2",
        (
            "{% macro render(m) %}\n<|tool_calls_section_begin|>\n{% for c in m.tool_calls %}\n<|tool_call_begin|>{{ c.id }}\n"
            "<|tool_call_argument_begin|>{{ c.arguments }}<|tool_call_end|>\n{% endfor %}\n<|tool_calls_section_end|>\n{% endmacro %}"
        ),
    ),
    "encoder of K3": (
        "python",
        (
            'def open_tag(tag: str, **attrs: str) -> str:\n    inner = "".join(f\' {k}="{v}"\' for k, v in attrs.items())\n'
            '    return f"<|open|>{tag}{inner}<|sep|>"\n\n\ndef close_tag(tag: str) -> str:\n    return f"<|close|>{tag}<|sep|>"'
        ),
    ),
    "f-string": (
        "python",
        (
            'def render(call: Call) -> str:\n    return f"<|tool_call_begin|>{call.id}<|tool_call_argument_begin|>'
            '{call.arguments}<|tool_call_end|>"'
        ),
    ),
    "parser": (
        "rust",
        (
            'match rest.find("<|tool_call_end|>") {\n    Some(at) => self.finish(&rest[..at]),\n    None => return Ok(None), '
            "// isn't complete\n}"
        ),
    ),
    "state machine": (
        "ts",
        (
            "switch (token) {\n  case '<|tool_calls_section_begin|>': state = 'section'; break;\n"
            "  case '<|tool_call_begin|>': state = 'header'; break;\n  case '<|tool_call_argument_begin|>': state = 'args'; break;\n"
            "  case '<|tool_call_end|>': emit(); break;\n}"
        ),
    ),
    "grammar": (
        "ebnf",
        (
            'section = "<|tool_calls_section_begin|>" call+ "<|tool_calls_section_end|>"\n'
            'call    = "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" object "<|tool_call_end|>"\nid      = name ":" digit+'
        ),
    ),
    "grammar of K3": (
        "",
        (
            'open(t, attrs) = "<|open|>" t { " " key "=" quoted } "<|sep|>"\nclose(t)       = "<|close|>" t "<|sep|>"\n'
            "call           = open(call) argument* close(call)"
        ),
    ),
    "placeholders": (
        "",
        (
            "<|tool_calls_section_begin|>\n<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{arguments}"
            "<|tool_call_end|>\n...\n<|tool_calls_section_end|>"
        ),
    ),
    "placeholders of K3": (
        "",
        (
            '<|open|>call tool="NAME" index="N"<|sep|>\n<|open|>argument key="KEY" type="string"<|sep|>VALUE'
            "<|close|>argument<|sep|>\n<|close|>call<|sep|>"
        ),
    ),
    "stream of deltas": (
        "",
        (
            'data: {"choices":[{"delta":{"content":"<|tool_call_begin|>"}}]}\n\ndata: {"choices":[{"delta":{"content":'
            '"functions.get_weather:0"}}]}\n\ndata: {"choices":[{"delta":{"content":"<|tool_call_argument_begin|>{\\"city\\":"}}]}'
        ),
    ),
    "issue report": (
        "",
        (
            "content: \"I'll check.<|tool_calls_section_begin|><|tool_call_begin|>functions.Bash:0<|tool_call_argument_begin|>"
            '{\\"command\\": \\"ls\\"}<|tool_call_end|><|tool_calls_section_end|>"\nfinish_reason: "stop"'
        ),
    ),
    "diff of constants": (
        "diff",
        (
            '--- a/k2.py\n+++ b/k2.py\n@@ -3,2 +3,2 @@\n-BEGIN = "<|tool_call_section_begin|>"\n+BEGIN = "<|tool_calls_section_begin|>"\n'
            ' END = "<|tool_calls_section_end|>"'
        ),
    ),
    "grep": (
        "sh",
        "grep -rn '<|tool_call_begin|>' src/ | grep -v \"<|tool_call_end|>\"\nsed 's/<|sep|>/\\n/g' out.txt",
    ),
    "vLLM command": (
        "bash",
        "vllm serve moonshotai/Kimi-K2 --stop '<|tool_calls_section_end|>' --tool-call-parser kimi_k2",
    ),
    "SQL": ("sql", "SELECT id FROM answers WHERE text LIKE '%<|tool_call_begin|>%' OR text LIKE '%<|open|>call%';"),
    "C comment": (
        "c",
        "/* A call: <|tool_call_begin|> id <|tool_call_argument_begin|> json <|tool_call_end|> */\nint parse(void);",
    ),
    "history": (
        "",
        (
            "<|im_user|>user<|im_middle|>Hi<|im_end|><|im_assistant|>assistant<|im_middle|><|tool_calls_section_begin|>"
            "<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|><|im_end|>"
        ),
    ),
    "prompt of K3": (
        "",
        (
            '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>…<|close|>think<|sep|><|open|>response<|sep|>Hi'
            "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"
        ),
    ),
}

_PROSE: Final[dict[str, str]] = {
    "tags of K3": "XTML opens a tag with `<|open|>call<|sep|>` and closes it with `<|close|>call<|sep|>`; that's all.",
    "attributes of K3": 'The header is `<|open|>call tool="get_weather" index="1"<|sep|>`. Its index isn\'t 0-based.',
    "arguments of K3": 'An argument is `<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>`.',
    "message of K3": "A message ends with `<|close|>message<|sep|>` and `<|end_of_msg|>`, so don't cut there.",
    "thinking of K3": "It thinks between `<|open|>think<|sep|>` and `<|close|>think<|sep|>`, then it opens `response`.",
    "escapes of K3": 'In an attribute `&` is `&amp;` and `"` is `&quot;`; a value is raw up to `<|close|>argument<|sep|>`.',
    "header of K2": "The id in `<|tool_call_begin|>functions.get_weather:0` has a name and a number; it's global.",
    "arguments of K2": 'Behind `<|tool_call_argument_begin|>` there\'s JSON, for example `{"city": "Paris"}`.',
    "singular": "Some models write `<|tool_call_section_begin|>` (singular). It isn't in the vocabulary.",
    "in quotes": 'The marker "<|tool_call_begin|>" opens a call and "<|tool_call_end|>" closes it.',
    "in single quotes": "Search for '<|tool_call_begin|>'; if it isn't there, the parser worked.",
    "in Chinese quotes": "标记“<|tool_call_begin|>”表示调用开始，“<|tool_call_end|>”表示调用结束。",
    "in Japanese": "`<|tool_calls_section_begin|>` はツール呼び出しの始まりを表します。終わりは `<|tool_calls_section_end|>` です。",
    "in Russian": "Токен `<|tool_call_begin|>` открывает вызов, а `<|tool_call_end|>` закрывает его.",
    "in Arabic": "يبدأ الاستدعاء بالرمز `<|tool_call_begin|>` وينتهي بالرمز `<|tool_call_end|>`.",
    "bold": "**`<|tool_call_begin|>`** opens; *`<|tool_call_end|>`* closes. Isn't it simple?",
    "in parentheses": "The end marker (`<|tool_call_end|>`) must follow, or the call (`functions.ls:0`) isn't complete.",
    "heading": "## `<|tool_call_argument_begin|>`\n\nIt separates the id from the arguments.\n\n## `<|sep|>`\n\nThe same for K3.",
    "block quote": "> The docs say: `<|tool_call_begin|>` comes first.\n\nThat's right.",
    "link": "See [`<|tool_call_begin|>`](https://example.com/k2#tool_call_begin) and [`<|sep|>`](https://example.com/k3).",
    "table of ids": "| token | id |\n|---|---:|\n"
    + "".join(f"| `<|{name}|>` | {number} |\n" for name, number in _K2.items()),
    "nested list": "- K2\n  - `<|tool_call_begin|>`\n  - `<|tool_call_end|>`\n- K3\n  - `<|open|>`\n  - `<|close|>`\n",
    "across a stray backtick": "A ` alone is text.\n\nThe marker `<|tool_call_begin|>` isn't. Don't mix `it` up.",
    "escaped": "In Markdown it's <\\|tool_call_begin\\|>, in HTML &lt;|tool_call_begin|&gt;, in JSON \\u003c|tool_call_begin|\\u003e.",
    "HTML": "<p>The token <code>&lt;|tool_call_begin|&gt;</code> and the tag <code><|sep|></code> aren't the same.</p>",
    # Without code and quotes; moderate.
    "bare": "The token <|tool_call_begin|> opens a call, and <|tool_call_end|> closes it.",
    "bare section": "Everything between <|tool_calls_section_begin|> and <|tool_calls_section_end|> is read as calls.",
    "bare, one": "I searched for <|tool_call_argument_begin|> in the sources and found it in three files.",
    "bare of K3": "In K3, <|open|> begins a tag and <|sep|> ends its header.",
    "bare table": "| token | meaning |\n|---|---|\n| <|tool_call_begin|> | opens a call |\n| <|tool_call_end|> | closes it |\n",
    "bare list": "Tokens:\n- <|tool_call_begin|>: opens a call\n- <|tool_call_end|>: closes it\n",
    "bare list of markers": "".join(f"{n}. <|{name}|>\n" for n, name in enumerate(_K2, 1)),
    "bare dashes": "<|tool_call_begin|> — opens.\n<|tool_call_argument_begin|> — arguments.\n<|tool_call_end|> — closes.",
    "bare cells": "|token|meaning|\n|-|-|\n|<|tool_call_begin|>|begins|\n|<|tool_call_argument_begin|>|args|\n",
    "bare numbers": "<|tool_call_begin|> = 163597\n<|tool_call_end|> = 163599\n",
    "bare names": "CALL_BEGIN = <|tool_call_begin|>\nCALL_END = <|tool_call_end|>\n",
    "bare YAML": "begin: <|tool_call_begin|>\nend: <|tool_call_end|>\n",
    "bare HTML": "<ul><li><|tool_call_begin|></li><li><|tool_call_end|></li></ul>",
    "bare arrows": "section <|tool_calls_section_begin|> -> calls -> <|tool_calls_section_end|>",
    "bare question": "What does <|tool_call_begin|> do? It opens a call. And <|tool_call_argument_begin|>? Arguments.",
    "bare Jinja template": _CODE["Jinja template"][1],
    "bare Jinja template over lines": _CODE["Jinja template over lines"][1],
    "bare, Chinese": "标记 <|tool_call_begin|> 表示开始，<|tool_call_end|> 表示结束。",
}

_WITHOUT_TOOLS: Final[dict[str, str]] = {
    "bare call": f"The model then writes {write('k2', MarkedCall('get_weather', {'city': 'Paris'}))} and stops.",
    "bare call at the end": f"It ends with\n{write('k2', MarkedCall('Bash', {'command': 'ls'}), spelling=Spelling(gap=chr(10)))}",
    "bare call without a section": write("k2", MarkedCall("foo", {"a": 1}), spelling=Spelling(section=False)),
    "bare open call": write("k2", MarkedCall("foo", {"a": 1}), spelling=Spelling(part="open")),
    "bare K3 call": f"K3 writes {write('k3', MarkedCall('get_weather', {'city': 'Paris'}))} for it.",
    "bare K3 call without a section": write("k3", MarkedCall("f", {"a": 1}), spelling=Spelling(section=False))
    + " is one.",
    "indented call": f"For example:\n\n    {write('k2', MarkedCall('foo', {'a': 1}))}\n\nThat's it.",
}
"""Where the request declares no tools, these are text too."""


def texts() -> dict[str, str]:
    """Every text, by name."""
    found: dict[str, str] = {}
    for number, (markers, calls, spelling) in enumerate(_QUOTED):
        label = f"{markers} call {number}"
        found |= {f"{label}, {kind}": text for kind, text in _quoting(write(markers, *calls, spelling=spelling))}
    found |= dict(_lists())
    for kind, (language, code) in _CODE.items():
        found[f"code: {kind}"] = f"This is it:\n\n{_fence(language, code)}\n\nIt isn't long."
        if "\n" not in code and "`" not in code:
            found[f"inline: {kind}"] = f"Write `{code}` and it's done."
    return found | {f"prose: {kind}": text for kind, text in _PROSE.items()}


FORMS: Final = ("characters", "words", "whole", "reasoning")


def cases(form: str, *, declared: bool) -> Iterator[Case]:
    """Every text in one form."""
    found = texts() if declared else texts() | {f"no tools: {kind}": text for kind, text in _WITHOUT_TOOLS.items()}
    conversation = Conversation(
        (System("You explain."), User("How do Kimi models call tools?")), TOOLS if declared else {}
    )
    spread = list(product(MODELS["k2"] + MODELS["k3"], HOSTS))
    for number, (name, text) in enumerate(found.items()):
        model, host = spread[number * 7 % len(spread)]
        host = "generic" if "bare" in name and host == "moonshot" else host
        parts = (
            (("content", text),) if form != "reasoning" else (("reasoning_content", text), ("content", "That's it."))
        )
        yield Case(
            number,
            name,
            CLIENTS[(number + FORMS.index(form)) % len(CLIENTS)],
            host,
            model,
            conversation,
            Response(parts),
            {"characters": 1, "words": None, "whole": WHOLE, "reasoning": 3}[form],
            text=parts[-1][1],
            reasoning=text if form == "reasoning" else "",
        )
