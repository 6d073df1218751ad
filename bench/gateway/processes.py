"""Start the gateway and nginx for a benchmark, and read the CPU time and memory of a process tree."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from scripts.environment import install_system_package

__all__ = [
    "CannotStart",
    "Served",
    "Tls",
    "find_nginx",
    "first_line",
    "free_port",
    "gateway",
    "nginx",
    "running",
    "served_by",
    "tls_terminator",
]

_PATIENCE: Final = 120.0
ROOT: Final = Path(__file__).parents[2]

_NGINX: Final = """
daemon off; worker_processes {workers}; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_max_body_size 0; client_body_buffer_size 2m;
  keepalive_requests 1000000;
  upstream host {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} reuseport {listen}; {server}
    location / {{
      proxy_pass {scheme}://host; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      {location}
    }}
  }}
}}
"""
_GATEWAY: Final = """
[[providers]]
name = "bench"
api_base_url = "{scheme}://127.0.0.1:{upstream}/v1"
api_key = "none"
host = "vllm"
models = ["kimi-k2.5"]
{provider}
[aliases]
"renamed" = "bench/kimi-k2.5"
"""


class CannotStart(Exception):
    """A server is missing or did not start; the message says why."""


class Tls:
    """A listener with TLS, and the certificate that verifies it."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.port, self.certificate = port, certificate


class Served:
    """A running server: its port, and the CPU time and memory of its process and all that it started."""

    def __init__(self, port: int, pid: int, config: Path) -> None:
        self.port, self.pid, self.config = port, pid, config

    @property
    def pids(self) -> list[int]:
        return _tree(self.pid)

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return sum(map(_cpu_seconds, self.pids))

    def resident(self) -> int:
        """Current resident memory in bytes; pages that processes share count for each of them."""
        return sum(_resident(pid) for pid in self.pids)

    def peak(self) -> int:
        """Peak resident memory so far, in bytes."""
        found = (re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in self.pids)
        return sum(int(one[1]) * 1024 for one in found if one is not None)


def _tree(pid: int) -> list[int]:
    children: list[str] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += (task / "children").read_text().split()
    return [pid, *(one for child in children for one in _tree(int(child)))]


def _cpu_seconds(pid: int) -> float:
    """The CPU clock of another process: nanoseconds, with its threads that have ended (see clock_getcpuclockid(3))."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], **given: object) -> Iterator[subprocess.Popen[str]]:
    """A process, which ends with the block, and all that it started with it; also if SIGTERM ends this program."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    process = subprocess.Popen(command, text=True, start_new_session=True, **given)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line that it prints, which it does once it serves."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _PATIENCE)
    line = process.stdout.readline() if ready else ""
    if not line:
        raise CannotStart(f"did not start: {process.args!r}")
    return line


@contextmanager
def served_by(
    command: list[str], port: int, config: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """A server that is ready when it accepts connections. Its folder is the one of its configuration."""
    log = config.with_suffix(".log")
    with (
        log.open("w") as out,
        running(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=config.parent,
            env={**os.environ, **(environment or {})},
        ) as process,
    ):
        ends = time.monotonic() + _PATIENCE
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            if process.poll() is not None or time.monotonic() > ends:
                last = " / ".join(line.strip() for line in log.read_text(errors="replace").splitlines()[-4:])
                raise CannotStart(f"{Path(command[0]).name} did not start: {last or 'no output'}")
            time.sleep(0.05)
        yield Served(port, process.pid, config)


@contextmanager
def gateway(
    upstream: int, *, extra: str = "", module: str = "moonshim", workers: int = 1, tls: Tls | None = None
) -> Iterator[Served]:
    """`moonshim serve` in front of a host, with a typical configuration. `module` starts it."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "moonshim.toml"
        scheme = "https" if tls else "http"
        provider = f'ca_bundle = "{tls.certificate}"' if tls else ""
        settings = _GATEWAY.format(scheme=scheme, upstream=tls.port if tls else upstream, provider=provider)
        config.write_text(settings + extra)
        command = [sys.executable, "-m", module, "serve", "--config", str(config), "--port", "0"]
        environment = os.environ | {"XDG_STATE_HOME": folder, "PYTHONPATH": str(ROOT)}
        if workers > 1:
            command += ["--workers", str(workers)]
            environment["MOONSHIM_STORE"] = f"sqlite:{folder}/state.db"
        with (
            Path(folder, "log").open("w") as log,
            running(command, stdout=subprocess.PIPE, stderr=log, cwd=folder, env=environment) as process,
        ):
            announced = re.search(r"http://127\.0\.0\.1:(\d+)", first_line(process))
            if announced is None:
                raise CannotStart("the gateway did not announce its address")
            yield Served(int(announced[1]), process.pid, config)


@contextmanager
def nginx(upstream: int, *, tls: Tls | None = None, workers: int = 1) -> Iterator[Served]:
    """A plain relay without buffering. With `tls` it verifies the certificate of the host, as a gateway does."""
    location = (
        f"proxy_ssl_trusted_certificate {tls.certificate}; proxy_ssl_verify on; proxy_ssl_name localhost;"
        if tls
        else ""
    )
    scheme = "https" if tls else "http"
    with _nginx(upstream=tls.port if tls else upstream, scheme=scheme, location=location, workers=workers) as served:
        yield served


@contextmanager
def tls_terminator(upstream: int) -> Iterator[Tls]:
    """TLS in front of a host: nginx, with a certificate of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        certificate, key = Path(folder) / "certificate.pem", Path(folder) / "key.pem"
        options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        try:
            subprocess.run(["openssl", *options.split(), *names], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CannotStart(f"openssl cannot create a certificate: {error}") from error
        server = f"ssl_certificate {certificate}; ssl_certificate_key {key};"
        with _nginx(upstream=upstream, listen="ssl", server=server) as served:
            yield Tls(served.port, certificate)


@contextmanager
def _nginx(
    *, upstream: int, scheme: str = "http", listen: str = "", server: str = "", location: str = "", workers: int = 1
) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config = Path(folder) / "nginx.conf"
        settings = {"scheme": scheme, "listen": listen, "server": server, "location": location}
        config.write_text(_NGINX.format(folder=folder, port=port, upstream=upstream, workers=workers, **settings))
        # As root nginx changes to a user that must reach its own folder.
        Path(folder).chmod(0o755)
        with served_by([find_nginx(), "-p", folder, "-c", str(config)], port, config) as served:
            yield served


def find_nginx() -> str:
    """The path of nginx; it is installed where that is possible (Debian, as root)."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    found = shutil.which("nginx", path=path)
    if found is None and install_system_package("nginx-light"):
        found = shutil.which("nginx", path=path)
    if found is None:
        raise CannotStart("nginx is not installed (on Debian: apt-get install nginx-light)")
    return found
