"""What both converters share: the result, and how names, routes and gateway keys are taken over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from moonshim.config.files.variables import variables_in
from moonshim.config.model import ProviderConfig
from moonshim.config.tables.aliases import has_target
from moonshim.config.tables.gateway_keys import gateway_key_of
from moonshim.setup.account import Account
from moonshim.setup.document import Document

__all__ = ["Converted", "add_gateway_key", "known_targets", "value_of"]


class Converted(Struct, frozen=True):
    """A configuration made from another tool's file, what became of every setting, and the variables it needs."""

    document: Document
    account: Account

    @property
    def variables(self) -> list[str]:
        """The environment variables that have to be set."""
        return list(dict.fromkeys(_variables(self.document)))


def known_targets(targets: Iterable[str], providers: Iterable[ProviderConfig]) -> list[str]:
    """Those that a provider has: an alias with any other target would be refused."""
    known = list(providers)
    return [target for target in targets if has_target(target, known)]


def add_gateway_key(document: Document, name: str, key: str) -> None:
    """Let clients go on with the key that they have. Only its digest is stored."""
    entry: dict[str, Any] = {"name": name, "digest": gateway_key_of(name, key).digest}
    document.setdefault("keys", []).append(entry)


def _variables(value: Any, key: str = "") -> Iterator[str]:
    match value:
        case dict():
            for name, one in value.items():
                yield from _variables(one, name)
        case list():
            for one in value:
                yield from _variables(one)
        case str() if key == "api_key_env":
            yield value
        case str() if ":-" not in value:  # otherwise there is a default
            yield from variables_in(value)


def value_of(variable: str | None, environ: Mapping[str, str]) -> str:
    return environ.get(variable, "").strip() if variable else ""
