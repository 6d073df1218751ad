"""A client and options -> the client running against a gateway, or one sentence that says why not."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from moonshim.config.environment import JUDGE_MODEL
from moonshim.engine.formats import without_window
from moonshim.launch.foreground import run_foreground
from moonshim.launch.gateway import ANY_CLAUDE, GatewayAccess, GatewayFailed, open_gateway
from moonshim.launch.overlay import overlay_folder, write_files
from moonshim.launch.plan import CannotLaunch, Client, ClientPlan, LaunchContext, ModelInfo

__all__ = ["LaunchOptions", "NotInstalled", "environment_for", "launch", "prepared"]

_LOG: Final = "gateway.log"
_TAIL: Final = 5
_VERSION_SECONDS: Final = 10.0
_LAUNCH: Final = ("moonshim", "launch")


class NotInstalled(CannotLaunch):
    """The client is not on the PATH."""

    code = "client_not_installed"


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """The options of `moonshim launch`."""

    model: str | None = None
    small_model: str | None = None
    provider: str | None = None
    config: str | None = None
    demo: bool = False
    judge: str | None = None
    """The model that decides what may run in auto mode; an empty name: the one that Claude Code gets."""
    check: bool = True
    keep_gateway: bool = False
    command: tuple[str, ...] = ()
    """The launcher's own arguments, as typed, to repeat them."""


def launch(
    client: Client,
    options: LaunchOptions,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    note: Callable[[str], None],
) -> int:
    """Run the client to its end; its exit code, negative if a signal ended it. Raises `MoonshimError`.

    `note` gets a line for the user before the client starts.
    """
    program = shutil.which(client.program, path=environ.get("PATH"))
    if program is None:
        raise NotInstalled(f"{client.title} is not installed. Install it with: {client.install}")
    with prepared(client, options, environ, arguments=arguments, program=program) as (context, plan, gateway):
        if gateway.was_running and not options.demo:
            note(f"using the running gateway at {gateway}; --config FILE starts another one")
        if options.check and not options.demo and (failed := gateway.check(context.model.id, client.agent)):
            if failed.is_lasting:
                raise CannotLaunch(
                    f"The test request for {context.model.id} failed: {failed.message}\n"
                    f"To start {client.title} without a test, pass --no-check."
                )
            note(f"the test request for {context.model.id} failed: {failed.message}; starting {client.title} anyway")
        for line in plan.notes:
            note(line)
        write_files(context.folder, plan.files)
        started = time.time()
        code = run_foreground([program, *plan.arguments, *arguments], environment_for(plan, environ))
        if gateway.exit_code is not None:
            raise CannotLaunch(f"The gateway ended before the client. Its last log lines:\n{gateway.last_lines(_TAIL)}")
        if sys.stdout.isatty() and (session := client.last_session(context, started)) is not None:
            note(f"continue this session with: {shlex.join([*_LAUNCH, *options.command, '--', '--resume', session])}")
        if options.keep_gateway and gateway.pid is not None:
            note(f"the gateway stays at {gateway.url} until you stop it or this machine restarts: kill {gateway.pid}")
        return code


@contextmanager
def prepared(
    client: Client,
    options: LaunchOptions,
    environ: Mapping[str, str],
    *,
    arguments: Sequence[str] = (),
    program: str | None = None,
) -> Iterator[tuple[LaunchContext, ClientPlan, GatewayAccess]]:
    """The gateway, and the settings of the client for it."""
    serve = [] if options.config is None else ["--config", options.config]
    reuse, keep = options.config is None and options.judge is None, options.keep_gateway
    if options.judge is not None:
        environ = {**environ, JUDGE_MODEL: options.judge or options.model or ANY_CLAUDE}
    with overlay_folder(environ) as folder:
        # The log of a gateway that stays must not be removed with the folder.
        log = folder.with_name(_LOG) if keep else folder / _LOG
        with (
            _judge_named(options),
            open_gateway(serve, environ, log, demo=options.demo, reuse=reuse, keep=keep) as gateway,
        ):
            context = replace(
                _context(gateway, options, folder, environ),
                arguments=tuple(arguments),
                version=partial(_version_of, program, environ),
            )
            yield context, client.plan(context), gateway


@contextmanager
def _judge_named(options: LaunchOptions) -> Iterator[None]:
    """The gateway reads the judge from its environment; a problem with it names the option that the user gave."""
    try:
        yield
    except GatewayFailed as failed:
        if options.judge is None:
            raise
        option = "--model" if options.model and not options.judge else "--judge"
        raise GatewayFailed(str(failed).replace(f"environment: {JUDGE_MODEL}: ", f"{option}: ")) from None


def _version_of(program: str | None, environ: Mapping[str, str]) -> str:
    """What a program says of its version; empty if it says nothing."""
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "--version"], env=dict(environ), capture_output=True, text=True, timeout=_VERSION_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout.strip()


def _context(gateway: GatewayAccess, options: LaunchOptions, folder: Path, environ: Mapping[str, str]) -> LaunchContext:
    models = gateway.models()

    def choose(wanted: str | None) -> ModelInfo:
        chosen = _choose(gateway, models, wanted, options.provider)
        return chosen if chosen in models else gateway.requested_model(chosen.id)

    model, small = _defaults(gateway, options, models, choose)
    return LaunchContext(
        url=gateway.url,
        key=gateway.key,
        model=model,
        small_model=small,
        models=models,
        session=str(uuid.uuid4()),
        has_judge=gateway.has_judge(),
        folder=folder,
        environ=environ,
    )


def _defaults(
    gateway: GatewayAccess,
    options: LaunchOptions,
    models: Sequence[ModelInfo],
    choose: Callable[[str | None], ModelInfo],
) -> tuple[ModelInfo, ModelInfo]:
    """The main and the small model. Where the options name none, those that the gateway's aliases and routes name."""
    wanted = choose(options.small_model) if options.small_model else None
    if options.model is None and options.provider is None and (routed := gateway.routed_models()) is not None:
        return routed[0], wanted or routed[1]
    default = None if options.model else _default_at(gateway, options.provider, models)
    model = default or choose(options.model)
    if wanted is None and options.provider is None:
        wanted = gateway.default_small_model()
    return model, wanted or model


def _default_at(gateway: GatewayAccess, provider: str | None, models: Sequence[ModelInfo]) -> ModelInfo | None:
    """The gateway's default model; if a provider is named, the same model there. None if there is none."""
    default = gateway.default_model()
    if default is None or provider in (None, default.provider):
        return default
    name = default.id.removeprefix(f"{default.provider}/")
    return next((one for one in models if one.provider == provider and one.id in (name, f"{provider}/{name}")), None)


def environment_for(plan: ClientPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the client: the user's own, with the plan's changes."""
    return {name: value for name, value in environ.items() if name not in plan.unset} | plan.env


def _choose(gateway: GatewayAccess, models: Sequence[ModelInfo], wanted: str | None, provider: str | None) -> ModelInfo:
    """The model of that name, or the first one if None; at that provider if one is named."""
    names = ""
    if provider is not None:
        names = ", ".join(dict.fromkeys(model.provider for model in models if model.provider))
        models = [model for model in models if model.provider == provider]
    if wanted is None:
        if models:
            return models[0]
        if provider is not None:
            known = f" Its providers: {names}." if names else ""
            raise CannotLaunch(f"The gateway at {gateway} lists no model of provider '{provider}'.{known}")
        raise CannotLaunch(
            f"The gateway at {gateway} lists no model. Name one with --model, or use another file with --config."
        )
    if not any(wanted == model.id for model in models):
        wanted = without_window(wanted)
    for model in models:
        if wanted in (model.id, f"{model.provider}/{model.id}"):
            return model
    # Not every name that works is listed: a pattern such as kimi-* matches any number of them.
    return ModelInfo(wanted if provider is None or "/" in wanted else f"{provider}/{wanted}")
