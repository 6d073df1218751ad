"""The links of a configured chain -> the options of the engine, and the other transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct

from moonshim.engine.stages import Transformer
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidOption
from moonshim.transformers.kimi import Kimi
from moonshim.transformers.log import Log, Sink, standard_log
from moonshim.transformers.plugins import load_plugin, nearest

__all__ = ["Chain", "Use", "load_chain"]

OURS: Final = ("Kimi", "Log")
LOG_OPTIONS: Final = ("level", "text")


class Use(Protocol):
    """One link as configured (`TransformerUse` is one). It may have the `source` of a plug-in file."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Any]: ...


class Chain(Struct, frozen=True):
    """The result of a chain, for the `options` and `transformers` of `prepare`."""

    options: KimiOptions | None = None
    """Those of its `Kimi`; None if there is none: then a Kimi model gets all repairs."""
    transformers: tuple[Transformer, ...] = ()
    """All others, in order. The position of Kimi among them makes no difference: it always works next to the host."""
    warnings: tuple[str, ...] = ()
    """Warnings about what might surprise its author."""


def load_chain(uses: Sequence[Use] | None, *, folder: Path | None = None, log: Sink = standard_log) -> Chain:
    """The chain of these links. A second `Kimi` changes the options that it names.

    Plug-in files are relative to `folder`; `log` gets what a `Log` sees, and what plug-ins raise. Raises
    `InvalidOption` for an unknown link, or invalid options.

    >>> load_chain(None).options is None
    True
    """
    options: KimiOptions | None = None
    transformers: list[Transformer] = []
    for use in uses or ():
        match use.name:
            case "Kimi":
                options = KimiOptions.from_json(use.options, preset=options)
            case "Log":
                transformers.append(_log(use.options, log))
            case _:
                source = getattr(use, "source", None)
                transformers.append(
                    load_plugin(use.name, use.options, folder=folder, known=OURS, log=log, source=source)
                )
    warnings = () if options is None else tuple(Kimi(options).warnings)
    return Chain(options, tuple(transformers), warnings)


def _log(options: Mapping[str, Any], sink: Sink) -> Log:
    for key in options:
        if key not in LOG_OPTIONS:
            raise InvalidOption(f"unknown option {key!r} of Log{nearest(key, LOG_OPTIONS)}", field=key)
    return Log(sink, **options)
