"""The command line, the configuration and the environment -> a chat session, or an error that says why not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Final, cast
from urllib.parse import urlsplit

from msgspec import Struct

from moonshim.agent.history import HistoryError, HistoryFile
from moonshim.chat.choices import Choices, NoSuchModel
from moonshim.chat.conversations import ConversationFolder, data_folder
from moonshim.chat.permissions import Ask, Permission
from moonshim.chat.session import ChatSettings, Session
from moonshim.config import (
    LOOKED_FOR,
    Config,
    ConfigError,
    ProviderConfig,
    Secret,
    Target,
    config_from_environment,
    load_found,
    look_for_config,
)
from moonshim.config.endpoints import dialect_of
from moonshim.config.missing import FIRST_STEP, describe_missing
from moonshim.config.trust import NotTrusted
from moonshim.engine.hosts.profile import UpstreamDialect
from moonshim.errors import MoonshimError
from moonshim.gateway.outbound.regions import settle_regions

__all__ = ["ChatOptions", "ChatSetupError", "load_chat_config", "open_session"]


_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:KEY|PAT|PASS)S?$|(?:API|ACCESS|PRIVATE)_?KEY|TOKENS?(?:_|$)|SECRET|PASSW|PASSPHRASE|CREDENTIAL",
    re.IGNORECASE,
)
_SHORTEST_SECRET: Final = 8


class ChatSetupError(MoonshimError):
    """The chat cannot start: nothing is configured, or an option is invalid. The message says what to do."""

    code = "cannot_chat"


class ChatOptions(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    config: str | None = None
    resume: str | None = None
    folder: Path
    outside: bool = False
    demo: bool = False
    yolo: bool = False
    allow: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    """Variables that commands get although their names look like secrets."""
    setting: ChatSettings = ChatSettings()
    paced: bool = True
    """Whether the simulator responds at a natural speed, for people to watch."""


@asynccontextmanager
async def open_session(
    options: ChatOptions, environ: Mapping[str, str], ask: Ask | None = None
) -> AsyncIterator[Session]:
    """The chat. Raises `MoonshimError` with a message for the user."""
    from moonshim.agent.toolbox import toolbox

    if not options.folder.is_dir():
        raise ChatSetupError(f"--folder {options.folder}: the folder does not exist")
    async with AsyncExitStack() as stack:
        if options.demo:
            from moonshim.chat.demo import demo_host

            config = await stack.enter_async_context(demo_host(paced=options.paced))
        else:
            config = await asyncio.to_thread(settle_regions, load_chat_config(options, environ), environ)
        choices = Choices(config)
        stack.push_async_callback(choices.close)
        shelf = ConversationFolder(data_folder(environ) / "chats", here=options.folder, oneshot=ask is None)
        tools = toolbox(options.folder, outside=options.outside, hidden=_key_variables(config, options, environ))
        unknown = [name for name in options.allow if name not in {tool.name for tool in tools}]
        if unknown:
            raise ChatSetupError(
                f"--allow {unknown[0]}: unknown tool; available tools: {', '.join(t.name for t in tools)}"
            )
        notes: list[str] = []
        try:
            history = shelf.begin() if options.resume is None else shelf.open(options.resume)
        except HistoryError as error:
            if options.resume is not None:
                raise
            # The home folder is read-only in many containers; answering works anyway.
            shelf = ConversationFolder(Path(stack.enter_context(TemporaryDirectory(prefix="moonshim-"))))
            history = shelf.begin()
            notes.append(f"this conversation is not saved: {error} (set XDG_DATA_HOME to a writable folder)")
        stack.callback(history.close)
        session = Session(
            choices,
            _target(choices, options, history),
            shelf=shelf,
            history=history,
            tools=tools,
            permission=Permission(options.folder, yolo=options.yolo, allowed=options.allow, ask=ask),
            setting=options.setting,
        )
        session.notes = (*session.history.troubles, *notes)
        session.same_host = _same_host(options)
        try:
            yield session
        finally:
            await session.close()


def _same_host(options: ChatOptions) -> str:
    """The options that lead to the same host next time."""
    given = {"--config": options.config, "--base-url": options.base_url, "--key-env": options.key_env}
    words = [word for option, value in given.items() if value for word in (option, quote(value))]
    return "".join(f" {word}" for word in (["--demo"] if options.demo else words))


def _key_variables(config: Config, options: ChatOptions, environ: Mapping[str, str]) -> set[str]:
    """Variables to hide from commands: keys of providers, and everything whose name looks like a secret."""
    providers = config.providers
    places = {source.place for provider in providers for source in provider.key_sources}
    sent = [key.reveal() for provider in providers for key in provider.keys]
    sent += [value for provider in providers for value in provider.headers.values()]
    used = {
        name
        for name, value in environ.items()
        if len(value) >= _SHORTEST_SECRET and any(value in secret or secret in value for secret in sent if secret)
    }
    named = {name for name in environ if _SECRET_NAME.search(name)} - set(options.pass_env)
    return {*LOOKED_FOR, *places, *used, *named, options.key_env or ""} - {""}


def _target(choices: Choices, options: ChatOptions, history: HistoryFile) -> Target:
    """The model: as requested, as in the conversation, else the default."""
    if options.model is not None:
        near = options.provider or (choices.hosts[0].name if len(choices.hosts) == 1 else "")
        return choices.find(options.model, near=near, only=options.provider is not None)
    if options.provider is not None:
        return choices.first(options.provider)
    if history.model:
        try:
            return choices.find(history.model, near=history.provider, only=True)
        except NoSuchModel:
            pass  # it was used with another configuration
    return choices.first()


def load_chat_config(options: ChatOptions, environ: Mapping[str, str]) -> Config:
    """The configuration that the gateway would use, or an address from the command line."""
    if options.base_url is not None:
        return _from_address(options.base_url, options, environ)
    try:
        found = look_for_config(options.config, environ, Path.cwd())
        config = config_from_environment(environ) if found is None else load_found(found, environ)
    except NotTrusted as error:
        raise ChatSetupError(str(error)) from None
    except ConfigError as error:
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        raise ChatSetupError(f"invalid configuration:\n{lines}") from None
    if config is None:
        raise ChatSetupError(
            f"{describe_missing(environ)}\n{FIRST_STEP}.\n"
            "Use `--base-url URL --model NAME` for any host, or `--demo` for the simulator (no model)"
        )
    return config


def _from_address(address: str, options: ChatOptions, environ: Mapping[str, str]) -> Config:
    if options.model is None:
        raise ChatSetupError("--base-url needs --model: the models of that host are not known")
    try:
        name = urlsplit(address.strip()).hostname or ""
    except ValueError:
        name = ""
    if not name:
        raise ChatSetupError("--base-url must be a URL such as http://127.0.0.1:8000/v1")
    key = environ.get(options.key_env or "", "").strip()
    if options.key_env and not key:
        raise ChatSetupError(f"--key-env {options.key_env}: this environment variable is not set or is empty")
    host = ProviderConfig(
        name=name,
        api_base_url=address.strip(),
        keys=(Secret(key),) if key else (),
        dialect=cast(UpstreamDialect, dialect_of(address)),
    )
    return Config(providers=(host,), source="--base-url")
