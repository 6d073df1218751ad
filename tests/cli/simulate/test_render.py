"""`moonshim simulate render`: the prompt, what is wrong with it, and clear words for what cannot be rendered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.test_terminal import on_a_terminal
from tests.support.command import CompletedCommand, run_moonshim

CALL: Final = "<|tool_call_begin|>{}<|tool_call_argument_begin|>"


def chat(*ids: str, model: str = "kimi-k2.5", **more: Any) -> dict[str, Any]:
    """A round for each id."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "List."}]
    for id in ids:
        call = {"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": id, "content": "a.py"})
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]
    return {"model": model, "tools": tools, "messages": messages, **more}


def render(body: Any, *arguments: str) -> CompletedCommand:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return run_moonshim("simulate", "render", "-", *arguments, stdin=data)


def test_a_pipe_gets_the_prompt_and_nothing_else() -> None:
    done = render(chat("functions.ls:0"))
    assert (done.code, done.stderr) == (0, "")
    assert done.out.startswith(b"<|im_system|>tool_declare<|im_middle|># Tools")
    assert done.out.endswith(b"<|im_assistant|>assistant<|im_middle|><think>")
    assert b"\x1b" not in done.out


def test_a_wrong_id_is_told_with_its_place_and_the_right_one() -> None:
    done = render(chat("functions.ls:0", "call_9f"))
    assert CALL.format("call_9f").encode() in done.out
    assert done.code == 1
    assert done.lines == [
        "messages[3]: the model sees call_9f where it would write functions.ls:1",
        "Moonshot's API renames ids before the model sees them (try --as moonshot)",
    ]


def test_moonshot_renames_it_and_says_so() -> None:
    done = render(chat("call_9f"), "--as", "moonshot")
    assert CALL.format("functions.ls:0").encode() in done.out
    assert b"call_9f" not in done.out
    assert (done.code, done.lines) == (0, ["messages[1]: the model sees functions.ls:0 instead of call_9f"])


def test_a_host_that_renames_on_messages_alone_is_shown_so() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}
    asked = [{"role": "user", "content": "List."}, {"role": "assistant", "content": [use]}]
    body = {"model": "kimi-k2.5", "max_tokens": 9, "messages": [*asked, {"role": "user", "content": [result]}]}
    done = render(body, "--as", "fireworks")
    assert done.code == 0
    assert CALL.format("functions.ls:0").encode() in done.out
    assert CALL.format("toolu_1").encode() in render(body, "--as", "vllm").out
    assert CALL.format("call_9f").encode() in render(chat("call_9f"), "--as", "fireworks").out


def test_half_a_character_is_rendered_as_hosts_take_it() -> None:
    done = render(b'{"model": "kimi-k2.5", "messages": [{"role": "user", "content": "a\\ud83d"}]}')
    assert done.code == 0
    assert b"<|im_middle|>a\\ud83d<|im_end|>" in done.out


def test_k3_sees_no_ids_so_none_is_wrong() -> None:
    done = render(chat("call_9f"), "--model", "kimi-k3")
    assert (done.code, done.stderr) == (0, "")
    assert b'<|open|>message role="tool" tool="ls" index="1"<|sep|>a.py' in done.out


def test_of_many_wrong_ids_the_first_are_told_and_the_rest_is_counted() -> None:
    done = render(chat(*(f"call_{at}" for at in range(25))))
    assert len(done.lines) == 22
    assert done.lines[0].startswith("messages[1]: the model sees call_0 ")
    assert done.lines[20] == "and 5 more"


def test_a_result_of_no_call_is_told() -> None:
    body = chat("functions.ls:0")
    body["messages"].append({"role": "tool", "tool_call_id": "call_x", "content": ""})
    done = render(body)
    assert "messages[3]: the model sees a result for call_x, which matches no earlier call" in done.lines


def test_messages_is_guessed_or_named_and_its_places_are_those_of_the_request() -> None:
    body = {
        "model": "kimi-k2.6",
        "max_tokens": 10,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "List."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}]},
        ],
    }
    guessed, named = render(body), render(body, "--wire", "messages")
    assert guessed.out == named.out
    assert b"## Return of toolu_1\na.py" in guessed.out
    assert "messages[1]: the model sees toolu_1 where it would write functions.ls:0" in guessed.lines


def test_what_the_host_would_refuse_is_told_and_shown_all_the_same() -> None:
    done = render(chat(model="kimi-k3", n=2), "--as", "moonshot")
    assert done.code == 1
    assert done.lines == ["moonshot would refuse this request: 400, invalid n: only 1 is allowed for this model"]
    assert done.out.endswith(b"<|open|>think<|sep|>")


def test_what_no_template_could_take_is_shown_as_far_as_it_goes() -> None:
    done = render({"model": "kimi-k2.5", "messages": "hello", "tools": 7})
    assert done.code == 1
    assert "would refuse this request" in done.stderr
    assert done.out.endswith(b"<think>")


def test_faults_behind_the_name_of_a_model_change_nothing() -> None:
    assert render(chat(model="kimi-k2.5+split-bytes")).out == render(chat()).out


def test_a_model_that_is_no_kimi_is_told_of() -> None:
    done = render(chat(model="plain-1"))
    assert "plain-1 is not a Kimi model and its template is unknown: showing K2's template" in done.lines


@pytest.mark.parametrize(
    ("body", "arguments", "why"),
    [
        (b"{", (), "standard input: invalid JSON: unexpected end of data at line 1, column 2"),
        (b" \n", (), "standard input: the input is empty"),
        (b"[]", (), "standard input: expected a request body (a JSON object)"),
        (b'{"messages": []}', (), "the request has no model; pass --model NAME"),
        (b'{"model": "gpt-5\\u001b[2J", "messages": []}', (), "unknown model gpt-5\\x1b[2J; use --model with one of"),
        (b'{"model": "k3", "input": "hi"}', (), "this is an OpenAI Responses request"),
        (b"{}", ("--as", "moonshit"), "(did you mean 'moonshot'?)"),
        (b"{}", ("--wire", "responses"), "invalid choice 'responses' (choose from chat, messages)"),
    ],
)
def test_what_cannot_be_rendered_is_one_clear_line(body: bytes, arguments: tuple[str, ...], why: str) -> None:
    done = render(body, *arguments)
    assert (done.code, done.out) == (2, b"")
    assert done.lines[0].startswith("moonshim simulate render: ")
    assert why in done.lines[0]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run_moonshim("simulate", "render", tmp_path / "none.json")
    assert (done.code, done.lines) == (
        2,
        [f"moonshim simulate render: {tmp_path / 'none.json'}: No such file or directory"],
    )


def test_the_prompt_in_a_pipe_is_verbatim_and_on_a_terminal_safe(tmp_path: Path) -> None:
    body = chat("functions.ls:0", "call\x1b_9f")
    body["messages"][0]["content"] = "a\x1b[2Jb\n\tc"
    file = tmp_path / "request.json"
    file.write_text(json.dumps(body))
    assert b"a\x1b[2Jb\n\tc" in run_moonshim("simulate", "render", file).out
    code, shown = on_a_terminal("simulate", "render", str(file), stream="stdout")
    assert code == 1
    assert "a\\x1b[2Jb\n\tc" in shown.replace("        c", "\tc")
    assert "\x1b[2J" not in shown


def test_a_terminal_has_colours_and_a_line_for_each_message(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(chat("functions.ls:0", "call_9f")))
    _, shown = on_a_terminal("simulate", "render", str(file), stream="stdout")
    assert "\x1b[2m<|tool_call_begin|>\x1b[0m\x1b[32mfunctions.ls:0\x1b[0m" in shown
    assert "\x1b[2m<|tool_call_begin|>\x1b[0m\x1b[31mcall_9f\x1b[0m" in shown
    assert "## Return of \x1b[31mcall_9f\x1b[0m\n" in shown
    assert shown.count("\x1b[2m<|im_end|>\x1b[0m\n") == 7
    plain = on_a_terminal("simulate", "render", str(file), stream="stdout", NO_COLOR="1")[1]
    assert "\x1b" not in plain
    _, renamed = on_a_terminal("simulate", "render", str(file), "--as", "moonshot", stream="stdout")
    assert "\x1b[31m" not in renamed
    assert "\x1b[32mfunctions.ls:1\x1b[0m" in renamed


def test_nobody_is_left_waiting_at_a_terminal() -> None:
    code, told = on_a_terminal("simulate", "render", stream="stdin")
    assert code == 2
    assert "no input" in told


def test_the_help_says_what_the_exit_codes_mean() -> None:
    done = run_moonshim("simulate", "render", "--help")
    assert done.code == 0
    assert b"exit codes:" in done.out
