"""`moonshim mend` between other programs: what arrives leaves at once, and every way to stop is quiet."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path
from typing import IO

import pytest

from tests.support.command import CLEAN, EXAMPLE, MOONSHIM, environment, mend, mend_with_engine, run_moonshim

EVENTS = [event + b"\n\n" for event in CLEAN.split(b"\n\n")[:-1]]


def started(*arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*MOONSHIM, "mend", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        bufsize=0,
        # Whoever runs the tests in the background may have told all its children to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def read_within(stream: IO[bytes] | None, seconds: float = 20) -> bytes:
    assert stream is not None
    ready, _, _ = select.select([stream], [], [], seconds)
    return os.read(stream.fileno(), 1 << 16) if ready else b""


def finished(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    if not process.stdin.closed:
        process.stdin.close()
    told = process.stderr.read().decode()
    code = process.wait(20)
    process.stdout.close()
    process.stderr.close()
    return code, told


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input(arguments: list[str]) -> None:
    done = mend(*arguments, stdin=EXAMPLE.read_bytes())
    assert (done.code, done.out) == (0, mend_with_engine(EXAMPLE.read_bytes(), model="kimi-k2"))
    assert done.lines[0] == "standard input: 3 repairs"


def test_standard_input_among_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CLEAN)
    assert mend(tmp_path / "a", "-", tmp_path / "a", stdin=CLEAN).out == CLEAN * 3


def test_standard_input_twice_is_bad_usage() -> None:
    assert mend("-", "-", stdin=CLEAN).code == 2


@pytest.mark.parametrize("stdin", [b"", b"junk", bytes(10_000_000)], ids=["empty", "junk", "zeros"])
def test_standard_input_that_is_no_recording(stdin: bytes) -> None:
    done = mend(stdin=stdin)
    assert (done.code, done.out, len(done.lines)) == (1, b"", 1)


def test_each_event_leaves_when_it_arrives() -> None:
    process = started()
    assert process.stdin
    for event in EVENTS:
        process.stdin.write(event)
        assert read_within(process.stdout) == event
    assert finished(process) == (0, "standard input: clean\n  ending: stop\n")


def test_each_line_of_ndjson_leaves_when_it_arrives() -> None:
    process = started()
    assert process.stdin
    for event in EVENTS[:-1]:
        line = event.removeprefix(b"data: ").replace(b"\n\n", b"\n")
        process.stdin.write(line)
        assert read_within(process.stdout) == line
    assert finished(process)[0] == 0


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0"])
def test_a_pipe_on_standard_input_is_read_as_it_fills(name: str) -> None:
    process = started(name)
    assert process.stdin
    for event in EVENTS[:-1]:
        process.stdin.write(event)
        assert read_within(process.stdout) == event
    assert finished(process)[0] == 0


def test_what_a_shell_passes_for_a_command_is_read() -> None:
    command = f"{' '.join(MOONSHIM)} mend <(cat {EXAMPLE}) | wc -c"
    run = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, timeout=30, check=True)
    assert int(run.stdout) > 0


@pytest.mark.parametrize("arguments", [("mend",), ("mend", str(EXAMPLE), "--tools"), ("explain",)])
def test_a_named_pipe_is_refused_instead_of_waiting_for_a_writer(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = run_moonshim(*arguments, fifo)
    assert done.code in (1, 2)
    assert f"{fifo}: not a regular file. Use - to read from a pipe on standard input" in done.stderr
    assert len(done.lines) == 1


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    process = started()
    assert process.stdin
    assert process.stdout
    process.stdin.write(EVENTS[0])
    read_within(process.stdout)
    process.stdout.close()
    process.stdin.write(EVENTS[1])
    assert process.stderr
    assert process.stderr.read() == b""
    assert process.wait(20) == 141
    process.stdin.close()
    process.stderr.close()


def test_a_reader_of_both_outputs_that_leaves_ends_it_quietly() -> None:
    command = " ".join([*MOONSHIM, "mend", str(EXAMPLE), str(EXAMPLE)]) + " 2>&1 | true; echo ${PIPESTATUS[0]}"
    run = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, timeout=30, check=False)
    assert (run.stdout.strip() in (b"141", b"0"), run.stderr) == (True, b"")


def test_help_into_a_closed_pipe_is_quiet() -> None:
    command = f"({' '.join(MOONSHIM)} mend --help; echo $? >&2) | true"
    run = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, timeout=30, check=False)
    assert run.stderr.strip() in (b"141", b"0")


def test_an_interrupt_ends_it_quietly() -> None:
    process = started()
    assert process.stdin
    process.stdin.write(EVENTS[0])
    read_within(process.stdout)  # it is past its start now
    process.send_signal(signal.SIGINT)
    assert finished(process) == (130, "")


def test_a_full_disk_is_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("wb") as full:
        for arguments in (["mend", str(EXAMPLE)], ["--help"]):
            run = subprocess.run(
                [*MOONSHIM, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=30, check=False
            )
            assert run.returncode == 1
            assert run.stderr.count(b"\n") == 1
            assert b"cannot write to standard output" in run.stderr


@pytest.mark.parametrize(
    ("redirection", "code"),
    [("<&-", 2), (">&-", 1), ("2>&-", 0), ("- <&-", 1), (">&- 2>&-", 1), ("--report json 2>&-", 0)],
)
def test_closed_streams_are_no_fault(redirection: str, code: int) -> None:
    file = "" if "<" in redirection else str(EXAMPLE)
    command = f"{' '.join(MOONSHIM)} mend {file} {redirection}"
    run = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, timeout=30, check=False)
    assert run.returncode == code
    assert b"Traceback" not in run.stderr
