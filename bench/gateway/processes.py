"""Starts the host, the gateway and nginx for a benchmark, each a process of its own, and reads what they used."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["Served", "free_port", "gateway", "host", "install_nginx", "nginx", "yield_cpu"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PATIENCE: Final = 30.0

_NGINX: Final = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream host {{ server 127.0.0.1:{upstream}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://host; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""
_GATEWAY: Final = """
[[providers]]
name = "bench"
api_base_url = "http://127.0.0.1:{upstream}/v1"
api_key = "none"
host = "vllm"
models = ["kimi-k2.5", "kimi-k2.5+markers", "kimi-k2.5+stamps"]

[aliases]
"renamed" = "bench/kimi-k2.5"
"""


class Served:
    """A server that runs: its port, and what its process has used."""

    def __init__(self, port: int, pids: list[int], config: Path) -> None:
        self.port, self.pids, self.config = port, pids, config

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        total = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    def resident(self) -> int:
        """Bytes of memory that are its own or shared, now."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak(self) -> int:
        """The most that it was so far."""
        found = (re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in self.pids)
        return sum(int(one[1]) * 1024 for one in found if one is not None)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def _running(command: list[str], **given: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, text=True, **given)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    """The first line that it prints: it has nothing to say before it serves."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _PATIENCE)
    line = process.stdout.readline() if ready else ""
    if not line:
        raise SystemExit(f"this did not start: {process.args!r}")
    return line


@contextmanager
def host(*, chunks: int = 200, gap_ms: float = 10.0, yields: bool = False) -> Iterator[int]:
    """With `yields`, it runs only when no other process needs the CPU."""
    command = [sys.executable, "-m", "bench.gateway.host", "0", "--chunks", str(chunks), "--gap-ms", str(gap_ms)]
    with _running(command, stdout=subprocess.PIPE) as process:
        if yields:
            yield_cpu(process.pid)
        yield int(_line(process))


def yield_cpu(pid: int = 0) -> None:
    """Stand-ins for other machines must not take CPU time from what is measured."""
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def gateway(upstream: int, *, extra: str = "") -> Iterator[Served]:
    """`moonshim serve` in front of a host, with the configuration that people have."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "moonshim.toml"
        config.write_text(_GATEWAY.format(upstream=upstream) + extra)
        port = free_port()
        command = [sys.executable, "-m", "moonshim", "serve", "--config", str(config), "--port", str(port)]
        with (
            Path(folder, "log").open("w") as log,
            _running(command, stdout=subprocess.PIPE, stderr=log, cwd=folder) as process,
        ):
            _line(process)
            yield Served(port, [process.pid], config)


@contextmanager
def nginx(upstream: int) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config = Path(folder) / "nginx.conf"
        config.write_text(_NGINX.format(folder=folder, upstream=upstream, port=port))
        # As root nginx changes to a user that must reach its own folder.
        Path(folder).chmod(0o755)
        with _running([_nginx(), "-p", folder, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
            _answers(port)
            workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield Served(port, [process.pid, *map(int, workers)], config)


def _answers(port: int) -> None:
    ends = time.monotonic() + _PATIENCE
    while time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise SystemExit("nginx did not start")


def _nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise SystemExit("nginx is not here; on Debian: apt-get install nginx-light")
    return found


def install_nginx() -> None:
    """On a Debian where we may: put nginx there. Elsewhere the benchmark says what is missing."""
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or os.geteuid() != 0:
        return
    if shutil.which("apt-get") is None:
        return
    print("installing nginx-light, which the gateway is measured beside", file=sys.stderr, flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "nginx-light"]):
        subprocess.run(["apt-get", *arguments], env=quiet, check=False, stdout=subprocess.DEVNULL)
