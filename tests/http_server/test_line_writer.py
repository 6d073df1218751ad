"""Whoever logs never waits, whether its log is read or not."""

from __future__ import annotations

import os
import subprocess
import sys

from moonshim.http_server.line_writer import LineWriter
from tests.support.command import environment
from tests.support.gateway.serving import wait_until


def test_whoever_logs_does_not_wait_and_is_told_what_was_dropped() -> None:
    reads, writes = os.pipe()
    writer = LineWriter(writes, limit=10, report_dropped="dropped {}".format)
    line = "x" * 4000
    for _ in range(100):  # a pipe takes 64 KiB, the queue ten more lines
        writer.write(line)
    dropped = wait_until(lambda: writer.dropped, "the queue is full")
    assert 50 < dropped < 100
    told = b""
    while b"dropped" not in told:
        told += os.read(reads, 65536)
    assert f"dropped {dropped}" in told.decode()
    writer.close()
    os.close(writes)
    os.close(reads)


def test_a_reader_that_is_gone_ends_nothing() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    writer = LineWriter(writes)
    for _ in range(100):
        writer.write("nobody reads this")
    writer.close()
    os.close(writes)
    assert not writer._thread.is_alive()


def test_a_process_ends_though_its_log_is_not_read() -> None:
    program = (
        "from moonshim.http_server import logs\n"
        "logs.configure('info')\n"
        "for _ in range(2000): logs.event('x' * 100)\n"
        "logs.close()\n"
        "print('done', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.read() == b"done\n"
        process.wait(10)
