"""Chat requests whose parameters no host takes as they are: sampling, limits, thinking, choices among tools."""

from __future__ import annotations

from typing import Any, Final

from tests.engine.request.nasty.case import Nasty, ai, call, chat, result
from tests.engine.request.nasty.chat import ASK, READ, TOOLS

__all__ = ["FIELDS"]

_ROUND: Final = (ASK, ai(call("c1", "Bash", '{"command":"ls"}'), content=None), result("c1", "a.txt"))
_THINKING: Final[dict[str, dict[str, Any]]] = {
    "nothing said of thinking": {},
    "thinking on": {"thinking": {"type": "enabled"}},
    "thinking off": {"thinking": {"type": "disabled"}},
    "thinking adaptive": {"thinking": {"type": "adaptive"}},
    "thinking with an effort inside": {"thinking": {"type": "enabled", "effort": "max", "keep": "all"}},
    "thinking and reasoning_effort together": {"thinking": {"type": "enabled"}, "reasoning_effort": "low"},
    "thinking off and an effort all the same": {"thinking": {"type": "disabled"}, "reasoning_effort": "high"},
    "reasoning_effort minimal": {"reasoning_effort": "minimal"},
    "reasoning_effort xhigh": {"reasoning_effort": "xhigh"},
    "reasoning_effort none": {"reasoning_effort": "none"},
    "a word for the effort that nobody knows": {"reasoning_effort": "ultra"},
    "the kwargs of a template": {"chat_template_kwargs": {"thinking": False, "enable_thinking": False}},
    "keep asked for by a template": {"chat_template_kwargs": {"preserve_thinking": True, "other": 1}},
    "OpenRouter's reasoning switched off": {"reasoning": {"enabled": False}},
    "OpenRouter's reasoning with a budget": {"reasoning": {"max_tokens": 2000}},
    "enable_thinking off": {"enable_thinking": False, "thinking_budget": 100},
    "a budget in Chat": {"thinking": {"type": "enabled", "budget_tokens": 5000}},
    "keep null": {"thinking": {"type": "enabled", "keep": None}},
}
_CHOICES: Final[dict[str, Any]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": {"type": "function", "function": {"name": "Bash"}},
    "some": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "Read"}}]},
    },
}
_SAMPLING: Final[dict[str, dict[str, Any]]] = {
    "temperature 0 and one answer": {"temperature": 0, "n": 1},
    "temperature 2": {"temperature": 2.0, "top_p": 0.1},
    "temperature 0.6 with thinking off": {"temperature": 0.6, "thinking": {"type": "disabled"}},
    "temperature 1 with thinking off": {"temperature": 1, "thinking": {"type": "disabled"}},
    "a temperature below 0": {"temperature": -0.5},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": -1.5},
    "everything null": {
        "temperature": None,
        "top_p": None,
        "n": None,
        "stop": None,
        "tools": None,
        "tool_choice": None,
        "max_tokens": None,
        "response_format": None,
        "reasoning_effort": None,
        "stream": None,
    },
    "one stop sequence": {"stop": "\n\nHuman:"},
    "a million output tokens": {"max_tokens": 1_000_000},
    "two limits of output tokens": {"max_tokens": 1024, "max_completion_tokens": 512},
    "two limits, the one that does not count too high": {"max_tokens": 10_000_000, "max_completion_tokens": 5},
    "two limits, the one that counts too high": {"max_tokens": 5, "max_completion_tokens": 10_000_000},
    "no output tokens": {"max_tokens": 0},
    "a schema for the answer": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "out", "strict": True, "schema": READ | {"additionalProperties": False}},
        }
    },
    "a schema for the answer that Moonshot refuses": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "out",
                "schema": {"$schema": "x", "type": "object", "properties": {"a": {"const": 1}}},
            },
        }
    },
    "a schema that is not there": {"response_format": {"type": "json_schema", "json_schema": {"name": "out"}}},
    "plain text asked for": {"response_format": {"type": "text"}},
}

FIELDS: Final[tuple[Nasty, ...]] = (
    *(chat(name, *_ROUND, tools=TOOLS, **fields) for name, fields in _THINKING.items()),
    *(
        chat(f"tool_choice {word}, {name}", *_ROUND, tools=TOOLS, tool_choice=choice, **fields)
        for word, choice in _CHOICES.items()
        for name, fields in _THINKING.items()
        if name in ("nothing said of thinking", "thinking on", "thinking off", "reasoning_effort none")
    ),
    *(chat(f"tool_choice {word} without tools", ASK, tool_choice=choice) for word, choice in _CHOICES.items()),
    chat("tool_choice required with an empty list of tools", ASK, tools=[], tool_choice="required"),
    chat(
        "a choice of a tool that is not declared",
        ASK,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "Grep"}},
    ),
    *(chat(name, ASK, **fields) for name, fields in _SAMPLING.items()),
    chat("eight stop sequences", ASK, stop=[f"stop {n}" for n in range(8)]),
    chat("stop sequences of 200 characters", ASK, stop=["ä" * 17, "x" * 200, "ok", ""]),
    chat("functions of 2023", ASK, functions=[{"name": "ls", "parameters": READ}], function_call={"name": "ls"}),
)
