"""What a host does not count is estimated."""

from __future__ import annotations

import pytest

from moonshim.engine.tokens import estimate_tokens
from moonshim.engine.values.conversation import Message, Reasoning, Request, Text, ToolCall, Usage
from moonshim.usage.estimate import complete_usage

ASKED = Request(model="kimi-k2.5", messages=(Message("user", (Text("What is the time in Paris? " * 50),)),))
SAID = Message(
    "assistant", (Reasoning("I do not know. " * 50), Text("Half past nine."), ToolCall("c", "clock", '{"a": 1}'))
)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("usage", [None, Usage(), Usage(input_tokens=900), Usage(output_tokens=3), Usage(900, 3)])
def test_what_a_host_does_not_count_is_charged_by_estimate(usage: Usage | None, whole: bool) -> None:
    """A host that reports no usage, or a client that leaves before it comes, must not be a way around a limit."""
    read = usage.input_tokens if usage and usage.input_tokens else estimate_tokens(ASKED)
    counted = complete_usage(usage, ASKED, SAID, whole=whole)
    assert counted.input_tokens is not None
    assert counted.output_tokens is not None
    charged = counted.input_tokens + counted.output_tokens
    if usage is not None and usage.output_tokens and whole:
        assert charged == read + usage.output_tokens
    else:
        assert read + 200 < charged < read + 400
