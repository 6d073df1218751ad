"""A provider's `transformer` setting -> its chains, checked link by link.

`use` may have names, `["Kimi", {options}]` and `{"Kimi": {options}}`. Names of claude-code-router's own transformers
are understood: they are not needed here, or are configured differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field

from moonshim.config.model import ProviderConfig, TransformerUse
from moonshim.config.problems import Path, Problems, nearest
from moonshim.config.tables.table import Table, kind_of
from moonshim.engine.request.extra_body import check_extra_body, deep_merge
from moonshim.errors import InvalidInput, MoonshimError

if TYPE_CHECKING:
    from moonshim.transformers import Chain

__all__ = [
    "OPENROUTER_HEADERS",
    "OURS",
    "PUTS_OPTIONS",
    "Chains",
    "Foreign",
    "chain_warnings",
    "foreign_transformer",
    "is_plug_in",
    "plug_in_file",
    "read_chains",
]

OURS: Final = ("Kimi", "Log")

_NOT_NEEDED: Final = "is not needed: the host is detected from its address"
_MERGED: Final = "; its options are added to `body`"
_MENDED: Final = "is not needed: Moonshim always does this"
_CHAT: Final = "is not needed: the gateway uses Chat Completions at the same address"
_REPLACED: Final = "is replaced by"
_ELSEWHERE: Final = "uses a protocol that is not supported, and is ignored"
_FOREIGN: Final[dict[str, str]] = {
    "openrouter": _NOT_NEEDED + _MERGED,
    "deepseek": _NOT_NEEDED,
    "groq": _NOT_NEEDED,
    "cerebras": _NOT_NEEDED,
    "vercel": _NOT_NEEDED + _MERGED,
    "glm": _NOT_NEEDED,
    "openai": _NOT_NEEDED,
    "tooluse": _MENDED,
    "reasoning": _MENDED,
    "forcereasoning": _MENDED,
    "enhancetool": _MENDED,
    "cleancache": _MENDED,
    "streamoptions": _MENDED,
    "sampling": "is not needed: the host profile defines which sampling parameters a model accepts",
    "customparams": f"{_REPLACED} `body`",
    "maxtoken": f"{_REPLACED} the host profile fields `default_max_tokens` and `output_limit`",
    "maxcompletiontokens": f"{_REPLACED} the host profile fields `default_max_tokens` and `output_limit`",
    "anthropic": f'{_REPLACED} `dialect = "anthropic"`',
    "gemini": _ELSEWHERE + "; at Google's own address, the OpenAI-compatible endpoint is used instead",
    "vertex-gemini": _ELSEWHERE,
    "vertex-claude": _ELSEWHERE,
    "gemini-cli": _ELSEWHERE,
    "qwen-cli": _ELSEWHERE,
    "rovo-cli": _ELSEWHERE,
    "codex": _ELSEWHERE,
    "openai-responses": _CHAT,
    "openai-response": _CHAT,
}
"""The transformers built into claude-code-router, in lower case."""

PUTS_OPTIONS: Final = frozenset({"openrouter", "vercel", "customparams"})
"""Those that copy their options into every request."""
OPENROUTER_HEADERS: Final = {"referer": "HTTP-Referer", "title": "X-Title"}


class Foreign(Struct, frozen=True):
    """What becomes of a transformer of claude-code-router, and why (a predicate for people)."""

    outcome: Literal["replaced", "not_needed", "unsupported"]
    why: str


class Chains(Struct):
    """The chains of one provider, and its foreign transformers converted to our settings."""

    shared: tuple[TransformerUse, ...] | None = None
    by_model: dict[str, tuple[TransformerUse, ...]] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    model_overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    model_bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    dialect: str | None = None


def read_chains(
    table: Table,
    *,
    models: tuple[str, ...],
    plug_ins: Mapping[str, TransformerUse],
    folder: File | None,
    code: Mapping[File, bytes | None] | None = None,
    lenient: bool = False,
    javascript: bool = False,
) -> Chains:
    """The chains under `transformer`. `plug_ins`: those that the file itself declares, by name. `lenient`: a chain for
    a missing model is ignored, as in claude-code-router, instead of being an error. `javascript`: it declares plug-ins
    that cannot be run, whose names are unknown. `code`: the plug-in files that were trusted with the configuration,
    with their content at that time; no others are run."""
    reader = _Reader(table.problems, plug_ins, folder, code, javascript, inert=table.inert)
    chains = Chains()
    if "use" in table:
        uses = reader.uses(table.any_value("use"), table.at("use"))
        chains.overrides = _limits(uses)
        chains.headers = _headers(uses)
        chains.body = reader.body(uses)
        if any(use.name.lower() == "anthropic" for use, _ in uses):
            chains.dialect = "anthropic"
        chains.shared = reader.select_uses(uses)
    table.knows("use")
    for model in [key for key in table if key != "use"]:
        inner = table.table(model)
        assert inner is not None
        if models and model not in models:
            report = table.note if lenient else table.error
            report(model, f"this provider has no model '{model}'{nearest(model, models)}")
            continue
        uses = reader.uses(inner.any_value("use"), inner.at("use")) if "use" in inner else []
        inner.knows("use")
        inner.close()
        if limits := _limits(uses):
            chains.model_overrides[model] = limits
        if body := reader.body(uses):
            chains.model_bodies[model] = body
        if select_uses := reader.select_uses(uses):
            chains.by_model[model] = select_uses
    return chains


def foreign_transformer(name: str) -> Foreign | None:
    """What becomes of a transformer that is built into claude-code-router; None for any other name.

    >>> foreign_transformer("maxtoken").outcome, foreign_transformer("Kimi")
    ('replaced', None)
    """
    text = _FOREIGN.get(name.lower())
    if text is None or name in OURS:
        return None
    if text.startswith(_ELSEWHERE):
        return Foreign("unsupported", text)
    return Foreign("replaced" if text.startswith(_REPLACED) else "not_needed", text)


def is_plug_in(name: str) -> bool:
    """Whether a link of this name is third-party code."""
    return name not in OURS and name.lower() not in _FOREIGN and not name.endswith((".js", ".cjs", ".mjs"))


def plug_in_file(name: str, folder: File) -> File | None:
    """The file of a plug-in, if it is named by one: relative to the configuration.

    >>> str(plug_in_file("./mine.py:Mine", File("/etc"))), plug_in_file("package.module:Mine", File("/etc"))
    ('/etc/mine.py', None)
    """
    place, _, _ = name.rpartition(":")
    if not place.endswith(".py"):
        return None
    try:
        return folder / File(place).expanduser()
    except RuntimeError:  # `~user` for a user who does not exist
        return folder / place


def chain_warnings(provider: ProviderConfig) -> list[str]:
    """Warnings about the chains of a provider, each once."""
    shared, own = provider.transformers or (), provider.model_transformers
    alone = [] if provider.models and all(model in own for model in provider.models) else [shared]
    lines: dict[str, None] = {}
    for chain in [*alone, *((*shared, *uses) for uses in own.values())]:
        with suppress(MoonshimError):  # a plug-in that existed when the file was loaded
            lines.update(dict.fromkeys(_load(chain).warnings))
    return list(lines)


class _Reader:
    """Reads the lists of one provider."""

    def __init__(
        self,
        problems: Problems,
        plug_ins: Mapping[str, TransformerUse],
        folder: File | None,
        code: Mapping[File, bytes | None] | None,
        javascript: bool,
        *,
        inert: bool,
    ) -> None:
        self._inert = inert
        self._problems = problems
        self._plug_ins = plug_ins
        self._folder = folder
        self._code = code
        self._javascript = javascript

    def uses(self, value: Any, path: Path) -> list[tuple[TransformerUse, Path]]:
        """The links as written, and their paths."""
        if value is None and self._inert:
            return []
        if not isinstance(value, list):
            self._problems.add(path, f"expected a list of transformers, got {kind_of(value)}")
            return []
        places = [(*path, number) for number in range(len(value))]
        return [(use, place) for one, place in zip(value, places, strict=True) for use in self._links(one, place)]

    def _links(self, value: Any, path: Path) -> list[TransformerUse]:
        match value:
            case str(name) if name.strip():
                return [TransformerUse(name)]
            case [str(name)] if name.strip():
                return [TransformerUse(name)]
            case [str(name), dict(options)] if name.strip():
                return [TransformerUse(name, options)]
            case dict() if value and all(isinstance(options, dict) for options in value.values()):
                return [TransformerUse(name, options) for name, options in value.items()]
        self._problems.add(path, 'expected "Name", ["Name", {options}] or {"Name": {options}}')
        return []

    def select_uses(self, uses: list[tuple[TransformerUse, Path]]) -> tuple[TransformerUse, ...] | None:
        """The links to run. None if none is left: then the chain counts as not configured."""
        ours: list[TransformerUse] = []
        for use, path in uses:
            declared = self._plug_ins.get(use.name)
            if declared is not None:
                use = TransformerUse(declared.name, declared.options | use.options)
            elif use.name.lower() in _FOREIGN:
                self._problems.note(path, f"transformer '{use.name}' {_FOREIGN[use.name.lower()]}")
                continue
            elif use.name.endswith((".js", ".cjs", ".mjs")):
                self._problems.note(
                    path, f"'{use.name}' is ignored: JavaScript plug-ins are not supported; write it in Python"
                )
                continue
            if (problem := self._trust_problem(use)) is not None:
                self._problems.add(path, problem)
                continue
            use = self._with_resolved_path(use)
            try:
                if use.name in OURS or not self._inert:
                    _load((use,))
            except MoonshimError as error:
                if self._javascript and declared is None and use.name not in OURS:
                    self._problems.note(
                        path, f"unknown transformer '{use.name}', ignored; it may be defined by a JavaScript plug-in"
                    )
                else:
                    self._problems.add(path, str(error))
                continue
            ours.append(use)
        return tuple(ours) if ours or not uses else None

    def body(self, uses: list[tuple[TransformerUse, Path]]) -> dict[str, Any]:
        """The fields that claude-code-router's transformers put into requests: most of their options."""
        fields: dict[str, Any] = {}
        for use, path in uses:
            kind = use.name.lower()
            if kind not in PUTS_OPTIONS or use.name in self._plug_ins:
                continue
            for name, value in use.options.items():
                if kind == "openrouter" and name in OPENROUTER_HEADERS:
                    continue
                try:
                    check_extra_body({name: value}, use.name)
                except InvalidInput as error:
                    self._problems.note(path, f"{error.field}: {error}")
                    continue
                fields = deep_merge(fields, {name: value})
        return fields

    def _with_resolved_path(self, use: TransformerUse) -> TransformerUse:
        """A plug-in's file is relative to the configuration."""
        file = plug_in_file(use.name, self._folder) if self._folder is not None else None
        if file is None:
            return use
        source = None if self._code is None else self._code[file]
        return TransformerUse(f"{file}:{use.name.rpartition(':')[2]}", use.options, source)

    def _trust_problem(self, use: TransformerUse) -> str | None:
        """Why a plug-in is not run, if only trusted code may be and it is not trusted."""
        if self._code is None or self._folder is None or use.name in OURS:
            return None
        from moonshim.transformers.plugins import is_module_in

        file = plug_in_file(use.name, self._folder)
        if file is not None:
            return None if self._code.get(file) is not None else f"'{use.name}': no such file, or not readable: {file}"
        if not is_module_in(self._folder, use.name):
            return None
        return (
            f"'{use.name}' is a module in this folder, but trust covers only plug-ins named by their file; use its "
            "path instead, for example `./mine.py:Mine`"
        )


def _load(uses: tuple[TransformerUse, ...]) -> Chain:
    """The chain of these links. Raises `MoonshimError` for unknown ones and for invalid options."""
    from moonshim.transformers import load_chain

    return load_chain(uses)


def _limits(uses: list[tuple[TransformerUse, Path]]) -> dict[str, Any]:
    """The profile fields that claude-code-router's `maxtoken` and `maxcompletiontokens` correspond to."""
    overrides: dict[str, Any] = {}
    for use, _ in uses:
        kind = use.name.lower()
        limit = use.options.get("max_completion_tokens", use.options.get("max_tokens"))
        if kind in ("maxtoken", "maxcompletiontokens") and isinstance(limit, int) and limit > 0:
            overrides |= {"default_max_tokens": limit, "output_limit": limit}
        if kind == "maxcompletiontokens":
            overrides["max_tokens_field"] = "max_completion_tokens"
    return overrides


def _headers(uses: list[tuple[TransformerUse, Path]]) -> dict[str, str]:
    """The headers that claude-code-router's `openrouter` sends."""
    return {
        header: value
        for use, _ in uses
        if use.name.lower() == "openrouter"
        for option, header in OPENROUTER_HEADERS.items()
        if isinstance(value := use.options.get(option), str) and value
    }
