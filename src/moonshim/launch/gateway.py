"""A gateway for a client: one of this user that already runs, or a new one for as long as the launcher lives."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct

from moonshim.config.environment import LOCAL_KEY
from moonshim.errors import UpstreamUnresolved
from moonshim.gateway.process.run_file import RunningGateway, running_gateways
from moonshim.launch.plan import CannotLaunch, ModelInfo

__all__ = ["ANY_CLAUDE", "GatewayAccess", "GatewayFailed", "open_gateway"]

START_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 10.0
CHECK_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 2
"""Requests of a client that has ended need no time to finish."""
ANY_CLAUDE: Final = "claude-moonshim"
"""A name that only a pattern such as `claude-*` matches. `claude-default` would be the alias `default`, which files of
claude-code-router have, and which is not routed."""
_SMALL_CLAUDE: Final = "claude-haiku-4-5-20251001"
"""Claude Code's small model, which patterns such as `claude-*haiku*` and `claude-haiku-*` match."""
_URL: Final = re.compile(r"https?://[^\s·]+")
_START: Final = (
    "-P",  # without the current folder in the module path: files there may not be trustworthy
    "-c",
    "import sys; sys.path.append(sys.argv.pop(1)); from moonshim.cli import main; sys.exit(main())",
    str(Path(__file__).parents[2]),
)
"""The code that runs `moonshim`, also where it is not installed. Its first argument is this package's location."""


class GatewayFailed(CannotLaunch):
    """There is no gateway to use; the message says why and what to do."""

    code = "gateway_failed"


class FailedCheck(Struct, frozen=True):
    """What became of a test request."""

    message: str
    is_lasting: bool
    """Whether the next request would fail too; a host that is busy or away may answer in a minute."""


class GatewayAccess:
    """A gateway that answers, and the key for it."""

    def __init__(
        self,
        url: str,
        key: str | None,
        process: subprocess.Popen[bytes] | None = None,
        log: Path | None = None,
        source: str = "",
    ) -> None:
        self.url, self._key = url, key
        self._source = source
        self._process, self._log = process, log

    @property
    def was_running(self) -> bool:
        """Whether it was not started here."""
        return self._process is None

    def __str__(self) -> str:
        """The address, and where the configuration comes from if that is not known from the command line."""
        return f"{self.url} ({self._source})" if self._source else self.url

    @property
    def pid(self) -> int | None:
        """Of a gateway that was started here."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Of a gateway that was started here and has ended on its own; otherwise None."""
        return None if self._process is None else self._process.poll()

    def last_lines(self, number: int) -> str:
        """The end of the log of a gateway that was started here."""
        lines = [] if self._log is None else self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-number:])

    @property
    def key(self) -> str:
        """Some clients refuse to start without a key; a gateway without keys accepts any."""
        return self._key or "none"

    def has_judge(self) -> bool:
        """Whether it decides in Claude Code's auto mode what may run. Raises `GatewayFailed`."""
        _, body = self._request("GET", "/", None, ANSWER_SECONDS)
        return isinstance(body, dict) and body.get("auto_mode") == "judged"

    def models(self) -> tuple[ModelInfo, ...]:
        """What the gateway lists. Raises `GatewayFailed`."""
        status, body = self._request("GET", "/v1/models?limit=1000", None, ANSWER_SECONDS)
        if status != 200:
            raise GatewayFailed(_message(body) or f"The gateway at {self.url} answers with status {status}.")
        return tuple(_model_info(entry["id"], entry) for entry in body.get("data", ()))

    def model(self, name: str) -> ModelInfo:
        """A model that the gateway does not list, but may accept: a pattern such as `claude-*` matches many names."""
        status, entry = self._request("GET", f"/v1/models/{quote(name)}", None, ANSWER_SECONDS)
        return _model_info(name, entry if status == 200 else {})

    def requested_model(self, name: str) -> ModelInfo:
        """The same for a name that the user typed. Raises `CannotLaunch` if the gateway does not accept it."""
        status, entry = self._request("GET", f"/v1/models/{quote(name)}", None, ANSWER_SECONDS)
        if status == 404:
            raise CannotLaunch(_message(entry) or f"The gateway at {self} has no model called {name}.")
        return _model_info(name, entry if status == 200 else {})

    def default_model(self) -> ModelInfo | None:
        """The model that the gateway uses for a client that asks for its own; None if it has no such alias."""
        return self._target_of(ANY_CLAUDE)

    def routed_models(self) -> tuple[ModelInfo, ModelInfo] | None:
        """Names for the main and the small model by which the gateway applies its routes; None if it has none.

        A model that is requested by its own name is never routed.
        """
        status, entry = self._request("GET", f"/v1/models/{ANY_CLAUDE}", None, ANSWER_SECONDS)
        if status != 200 or not entry.get("routes"):
            return None
        main = _model_info(ANY_CLAUDE, entry)
        return main, main if self._target_of(_SMALL_CLAUDE) is None else self.model(_SMALL_CLAUDE)

    def default_small_model(self) -> ModelInfo | None:
        """The model that it uses for a client's own small model; None if no alias is about small models only."""
        small = self._target_of(_SMALL_CLAUDE)
        return None if small == self.default_model() else small

    def _target_of(self, alias: str) -> ModelInfo | None:
        """The model behind an alias, by a name that leads to the same provider; None if there is no such alias."""
        status, entry = self._request("GET", f"/v1/models/{alias}", None, ANSWER_SECONDS)
        if status != 200 or not (name := entry.get("root")):
            return None
        model, provider = self.model(name), entry.get("owned_by", "")
        # The plain name is that of the first provider that lists the model, or of none.
        return model if model.provider == provider else self.model(f"{provider}/{name}")

    def check(self, model: str, agent: str) -> FailedCheck | None:
        """Send one tiny request; why it failed, or None.

        `agent`: some hosts accept only agents that they know by their User-Agent.
        """
        body = {"model": model, "max_tokens": 16, "messages": [{"role": "user", "content": "Say ok."}]}
        status, answer = self._request(
            "POST", "/v1/chat/completions", body, CHECK_SECONDS, f"{agent} (moonshim launch)"
        )
        if status < 400:
            return None
        is_refusal = status not in (408, 429) and status < 500
        # Clients try for minutes to reach a host with a name that is wrong, and say nothing.
        is_lasting = is_refusal or _error(answer).get("code") == UpstreamUnresolved.code
        return FailedCheck(_message(answer) or f"status {status}", is_lasting)

    def _request(self, method: str, path: str, body: Any, seconds: float, agent: str = "moonshim") -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json", "user-agent": agent}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=seconds) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error, contextlib.suppress(ValueError):
                return error.code, json.load(error)
            return error.code, {}
        except (OSError, ValueError) as error:
            raise GatewayFailed(f"The gateway at {self.url} does not answer: {error}") from None


def _model_info(name: str, entry: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        name,
        entry.get("context_window"),
        entry.get("max_output_tokens"),
        entry.get("owned_by", ""),
        sees_images=entry.get("supports_image_in", True),
        thinks=entry.get("supports_reasoning", True),
        efforts=_efforts(entry),
    )


def _efforts(entry: Mapping[str, Any]) -> tuple[str, ...]:
    listed = (entry.get("think_efforts") or {}).get("valid_efforts", ())
    can_disable = entry.get("supports_thinking_type") == "both"
    if not listed:
        return ("none", "high") if can_disable else ()  # the gateway takes any effort for "think"
    return tuple(dict.fromkeys((*["none"] * can_disable, *listed)))


def _error(body: Any) -> dict[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _message(body: Any) -> str | None:
    message = _error(body).get("message")
    return message if isinstance(message, str) else None


@contextlib.contextmanager
def open_gateway(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    log: Path,
    *,
    demo: bool = False,
    reuse: bool = True,
    keep: bool = False,
) -> Iterator[GatewayAccess]:
    """A gateway that runs already and fits, or a new one. `arguments` go to `moonshim serve` of a new one.

    A new one ends with this context, or when this process dies: it watches a socket to it. With `keep` it goes on.
    """
    running = running_gateways(environ)  # in any case: it removes the files of gateways that were killed
    if reuse and (found := _usable(running, environ, demo)) is not None:
        yield found
        return
    with _started([*arguments, *(["--demo"] if demo else [])], environ, log, keep=keep) as access:
        yield access


def _usable(running: Sequence[RunningGateway], environ: Mapping[str, str], demo: bool) -> GatewayAccess | None:
    for gateway in running:
        key = gateway.key or environ.get(LOCAL_KEY)
        if gateway.demo == demo and not gateway.temporary and (key or not gateway.needs_key):
            access = GatewayAccess(gateway.url, key, source=gateway.source)
            with contextlib.suppress(GatewayFailed):
                access.models()
                return access
    return None


@contextlib.contextmanager
def _started(arguments: Sequence[str], environ: Mapping[str, str], log: Path, *, keep: bool) -> Iterator[GatewayAccess]:
    key = "msk_" + secrets.token_urlsafe(32)
    ours, theirs = socket.socketpair()
    command = [sys.executable, *_START, "serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    command += ["--graceful-seconds", str(GRACE_SECONDS)]
    if not keep:
        command += ["--lifeline", str(theirs.fileno())]
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ours, open(log, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as errors:
        process = subprocess.Popen(
            command,
            env={**environ, LOCAL_KEY: key},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C and Ctrl-Z are for the client
        )
        theirs.close()
        try:
            yield GatewayAccess(_address(process, log), key, process, log)
        finally:
            if not keep or process.poll() is not None:
                ours.close()
                _end(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address of the new gateway, from the line that it prints once its port answers. Raises `GatewayFailed`."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline().decode("utf-8", "replace") if ready else ""
    if found := _URL.search(line):
        return found[0]
    if not ready:
        raise GatewayFailed(f"The gateway did not start within {START_SECONDS:.0f} s. Its log is {log}.")
    process.wait()
    problem = log.read_text("utf-8", "replace").strip().removeprefix("moonshim serve: ")
    raise GatewayFailed(problem or f"The gateway exited with code {process.returncode}. Its log is {log}.")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(GRACE_SECONDS + 3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
