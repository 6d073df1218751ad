"""A person at a terminal -> answers. Only what the command line does not say is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from moonshim.config.environment import CLIENTS_OWN
from moonshim.config.known_hosts import KnownHost
from moonshim.config.model import Secret
from moonshim.config.problems import nearest
from moonshim.config.tables.provider_keys import key_fault
from moonshim.config.tables.providers import address_fault
from moonshim.setup.answers import HOSTS_BY_NAME, SMALL, KeyChoice, ProviderChoice, SetupAnswers

__all__ = ["Cancelled", "CheckResult", "Dialogue", "Terminal", "is_variable_name"]

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GAP: Final = re.compile(r"\{\w+\}")
_OTHER: Final = "other"
_SERVERS: Final = {
    "vllm": ("vLLM, on your own server", "http://localhost:8000/v1"),
    "sglang": ("SGLang, on your own server", "http://localhost:30000/v1"),
    _OTHER: ("another OpenAI- or Anthropic-compatible URL", ""),
}


class Cancelled(Exception):
    """The user does not want to go on."""


class Terminal(Protocol):
    """Where questions are asked."""

    def show(self, text: str) -> None: ...

    def ask(self, prompt: str) -> str: ...

    def ask_hidden(self, prompt: str) -> str: ...


class CheckResult(Struct, frozen=True):
    """What a test request found. `model` is the one that was used."""

    right: bool
    model: str | None = None


class Dialogue:
    """Asks for what is missing: host, key, models. `locate` finds the region of the key; `check` sends a test request,
    or returns None if it cannot."""

    def __init__(
        self,
        terminal: Terminal,
        environ: Mapping[str, str],
        locate: Callable[[SetupAnswers], SetupAnswers],
        check: Callable[[SetupAnswers], CheckResult | None],
    ) -> None:
        self._terminal, self._environ, self._locate, self._check = terminal, environ, locate, check

    def run(
        self, provider: ProviderChoice | None, key: KeyChoice | None, model: str | None, aliases: Mapping[str, str]
    ) -> SetupAnswers:
        """All answers. Raises `Cancelled`."""
        previous = None
        while True:
            choice = previous = self._complete(provider or self._provider(previous))
            answers = self._locate(
                SetupAnswers(
                    provider=choice, key=key or self._key(choice), model=model or _default_model(choice), aliases={}
                )
            )
            result = self._check(answers)
            if result is None or result.right or self._goes_on(asked=provider is None or key is None):
                break
        offered = answers.model or (result.model if result is not None and result.right else None)
        return self._models(replace(answers, model=offered), model, aliases)

    def confirm(self, question: str, *, default: bool = False) -> bool:
        while True:
            answer = self._terminal.ask(f"{question} [{'Y/n' if default else 'y/N'}] ").strip().lower()
            if answer in ("", "y", "yes", "n", "no"):
                return default if not answer else answer.startswith("y")
            self._terminal.show("Please answer y or n.")

    # -- host and key --------------------------------------------------------------------

    def _provider(self, previous: ProviderChoice | None) -> ProviderChoice:
        """The host. `previous` is the one whose test failed."""
        hosts, names = HOSTS_BY_NAME.values(), list(HOSTS_BY_NAME)
        has_key = {host.name for host in hosts if self._environ.get(host.variable, "").strip()}
        details = [
            f"{_GAP.sub('…', ProviderChoice.of_known(host.name, self._environ).url)}"
            f"{f'  ({host.variable} is set)' if host.name in has_key else ''}"
            for host in hosts
        ]
        self._terminal.show("Which host serves the model?")
        default = next((name for name in names if name in has_key), names[0])
        if previous is not None:
            default = previous.known.name if previous.known is not None else previous.profile or _OTHER
        servers = [text for text, _ in _SERVERS.values()]
        chosen = self._choose([*names, *_SERVERS], [*details, *servers], default, is_other=_is_url)
        if chosen in HOSTS_BY_NAME:
            return ProviderChoice.of_known(chosen, self._environ)
        if _is_url(chosen):
            return ProviderChoice(url=chosen)
        usual = previous.url if previous is not None and chosen == default else _SERVERS[chosen][1]
        url = self._ask_valid("URL of the API", usual, address_fault)
        return ProviderChoice(url=url, profile=None if chosen == _OTHER else chosen)

    def _complete(self, choice: ProviderChoice) -> ProviderChoice:
        """Ask for what the address of the host depends on."""
        missing = choice.missing_parts
        parts = {
            name: self._ask_valid(f"{what[0].upper()}{what[1:]}", "", KnownHost.part_fault)
            for name, what in missing.items()
        }
        return choice.with_parts({**self._environ, **parts}) if parts else choice

    def _key(self, choice: ProviderChoice) -> KeyChoice:
        show = self._terminal.show
        show(f"\nWhere is the API key for {choice.name}?")
        ways = ["variable", "type", "none"]
        details = [
            "in an environment variable (recommended: the file then contains no key)",
            "I type it now; it is stored in the file, which only you can read",
            "no key is needed",
        ]
        default = "none" if choice.known is None else "variable"
        match self._choose(ways, details, default):
            case "none":
                return KeyChoice()
            case "type":
                return KeyChoice(literal=Secret(self._typed_key()))
        usual = choice.known.variable if choice.known is not None else ""
        name = self._ask_valid("Name of the variable", usual, _name_fault)
        if not self._environ.get(name, "").strip():
            show(f"{name} is not set in this shell. Set it before you start the gateway.")
        return KeyChoice(variable=name)

    def _typed_key(self) -> str:
        while True:
            key = self._terminal.ask_hidden("API key (not shown): ").strip()
            fault = key_fault(key) if key else "it is empty"
            if fault is None:
                return key
            self._terminal.show(f"This key cannot be used: {fault}.")

    def _goes_on(self, *, asked: bool) -> bool:
        """After a failed test: whether to keep the answers. False: ask for host and key again."""
        ways = {"again": "enter host and key again", "save": "continue anyway", "quit": "quit; nothing is saved"}
        if not asked:
            del ways["again"]
        self._terminal.show("\nThe test failed. What now?")
        chosen = self._choose(list(ways), list(ways.values()), next(iter(ways)) if asked else "quit")
        if chosen == "quit":
            raise Cancelled
        return chosen == "save"

    # -- models --------------------------------------------------------------------------

    def _models(self, answers: SetupAnswers, given: str | None, aliases: Mapping[str, str]) -> SetupAnswers:
        choice = answers.provider
        if given is not None:
            return replace(answers, model=given, aliases=dict(aliases))
        if choice.known is not None and choice.known.models:
            self._terminal.show(f"\nModels of {choice.name}: {', '.join(choice.known.models)}")
        else:
            self._terminal.show(f"\nEnter model names as {choice.name} writes them.")
        model = self._ask_valid("Model for Claude Code (claude-*)", answers.model or "", _model_fault)
        own: dict[str, str] = {}
        others = [name for name in CLIENTS_OWN if name != "claude-*"]
        if not any(name in aliases for name in others):
            second = self._ask_valid(f"Model for Codex ({', '.join(others)})", model, _model_fault)
            own |= dict.fromkeys(others, second) if second != model else {}
        if SMALL not in aliases:
            small = self._ask_valid(f"Small model for titles and summaries ({SMALL})", model, _model_fault)
            own |= {SMALL: small} if small != model else {}
        return replace(answers, model=model, aliases=own | dict(aliases))

    # -- asking --------------------------------------------------------------------------

    def _choose(
        self,
        names: Sequence[str],
        details: Sequence[str],
        default: str,
        is_other: Callable[[str], bool] = lambda text: False,
    ) -> str:
        """One of the names; or any other text that `is_other` accepts."""
        width = max(map(len, names))
        for number, (name, detail) in enumerate(zip(names, details, strict=True), 1):
            self._terminal.show(f"  {number:>2}  {name.ljust(width)}  {detail}")
        while True:
            written = self._terminal.ask(f"Number or name [{default}]: ").strip()
            answer = written.lower() or default
            if is_other(written):
                return written
            if answer.isdecimal() and 0 < int(answer) <= len(names):
                return names[int(answer) - 1]
            if answer in names:
                return answer
            self._terminal.show(f"Enter a number from 1 to {len(names)}, or a name{nearest(answer, names)}.")

    def _ask_valid(self, prompt: str, default: str, fault_of: Callable[[str], str | None]) -> str:
        while True:
            answer = self._terminal.ask(f"{prompt}{f' [{default}]' if default else ''}: ").strip() or default
            fault = fault_of(answer)
            if fault is None:
                return answer
            self._terminal.show(f"{fault[0].upper()}{fault[1:]}.")


def is_variable_name(text: str) -> bool:
    """Whether this can be the name of an environment variable. A pasted API key mostly cannot.

    >>> is_variable_name("MOONSHOT_API_KEY"), is_variable_name("sk-5ecret")
    (True, False)
    """
    return _VARIABLE.fullmatch(text) is not None


def _is_url(text: str) -> bool:
    return "://" in text and address_fault(text) is None


def _name_fault(text: str) -> str | None:
    # The text is not repeated: it may be the key.
    return None if is_variable_name(text) else "expected the name of an environment variable, not the key itself"


def _model_fault(text: str) -> str | None:
    return None if text and not any(char.isspace() for char in text) else "enter the name of a model, without spaces"


def _default_model(choice: ProviderChoice) -> str | None:
    return choice.known.default if choice.known is not None else None
