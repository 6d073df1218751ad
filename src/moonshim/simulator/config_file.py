"""A settings file of the simulator -> `SimulatorSettings`, or a `ConfigError` that lists every mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path as File
from typing import Any, Final

from moonshim.config.files.source_file import read_text, read_values
from moonshim.config.problems import ConfigError, Problems
from moonshim.config.tables.table import Table, resolve_path
from moonshim.simulator.model.scenario import BUILT_IN
from moonshim.simulator.names import (
    assumption_problem,
    behaviour_problem,
    fault_problem,
    generation_problem,
    model_problem,
    scenario_problem,
    tokenizer_problem,
)
from moonshim.simulator.settings import ModelRow, SimulatorSettings

__all__ = ["load_settings", "parse_settings"]

_WHAT: Final = "a settings file"
_HINTS: Final = {
    "nature": " (did you mean 'as'?)",
    "behaviour": " (did you mean 'as'?)",
    "fault": " (did you mean 'faults'?)",
    "host": "; set it on the command line (--host)",
    "port": "; set it on the command line (--port)",
    "log_level": "; set it on the command line (--log-level)",
    "api_key": "; put the key in an environment variable and name it with `api_key_env`",
}


def load_settings(path: File | str, environ: Mapping[str, str]) -> SimulatorSettings:
    """Load a settings file. Paths in it are relative to its folder."""
    file = File(path)
    text = read_text(path, what=_WHAT)
    return parse_settings(text, suffix=file.suffix, environ=environ, source=str(path), folder=file.absolute().parent)


def parse_settings(
    text: str,
    *,
    suffix: str = ".toml",
    environ: Mapping[str, str],
    source: str = "simulator.toml",
    folder: File | None = None,
) -> SimulatorSettings:
    """Parse settings; what is not set has its default.

    >>> parse_settings("as = 'selfhost'\\nseed = 7", environ={}).behaviour
    'selfhost'
    >>> parse_settings("seed = 7\\nchoas = 0.1", environ={})
    Traceback (most recent call last):
    moonshim.config.problems.ConfigError: simulator.toml:2: choas: unknown key 'choas' (did you mean 'chaos'?)
    """
    value, lines = read_values(text, suffix=suffix, source=source)
    problems = Problems(source, lines)
    given = _read(Table(value, (), problems, environ), folder)
    if problems.errors:
        raise ConfigError(problems.errors)
    return SimulatorSettings(**{name: value for name, value in given.items() if value is not None})


def _read(root: Table, folder: File | None) -> dict[str, Any]:
    given: dict[str, Any] = {
        "behaviour": _read_name(root, "as", behaviour_problem),
        "faults": _read_names(root, "faults", fault_problem),
        "chaos": _read_share(root, "chaos"),
        "seed": root.integer("seed", least=0),
        "scenario": _read_scenario(root, folder),
        "model": _read_model(root, folder),
        "assume": _read_names(root, "assume", assumption_problem),
        "tokens_per_second": root.number("tokens_per_second"),
        "first_token_ms": root.number("first_token_ms"),
        "thinking_tokens": root.integer("thinking_tokens", least=0),
        "tokenizer": _read_tokenizer(root, folder),
        "api_key": _read_key(root),
        "models": _read_models(root.table("models")),
    }
    root.close(hints=_HINTS)
    return given


def _read_name(table: Table, key: str, wrong: Callable[[str], str | None]) -> str | None:
    name = table.text(key)
    if name is not None and (problem := wrong(name)) is not None:
        table.error(key, "; ".join(problem.splitlines()))
        return None
    return name


def _read_names(table: Table, key: str, wrong: Callable[[str], str | None]) -> tuple[str, ...] | None:
    names = table.texts(key)
    for place, name in enumerate(table.raw(key) if names is not None else ()):
        if isinstance(name, str) and name.strip() and (problem := wrong(name)) is not None:
            table.problems.add((*table.at(key), place), problem)
    return names


def _read_share(table: Table, key: str) -> float | None:
    share = table.number(key)
    if share is not None and share > 1:
        table.error(key, "must be between 0 and 1")
        return None
    return share


def _read_scenario(table: Table, folder: File | None) -> str | None:
    name = table.text("scenario")
    if name is None:
        return None
    where = name if name in BUILT_IN or not _is_path(name) else resolve_path(name, folder)
    if (problem := scenario_problem(where)) is not None:
        table.error("scenario", "; ".join(problem.splitlines()))
        return None
    return where


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or File(name).suffix != ""


def _read_model(table: Table, folder: File | None) -> str | None:
    text = table.text("model")
    if text is None:
        return None
    file, colon, name = text.rpartition(":")
    where = f"{resolve_path(file, folder)}:{name}" if colon and file.endswith(".py") else text
    if (problem := model_problem(where)) is not None:
        table.error("model", problem)
        return None
    return where


def _read_tokenizer(table: Table, folder: File | None) -> str | None:
    text = table.text("tokenizer")
    if text is None:
        return None
    where = resolve_path(text, folder)
    if (problem := tokenizer_problem(where)) is not None:
        table.error("tokenizer", problem)
        return None
    return where


def _read_key(table: Table) -> str | None:
    value, name = table.variable("api_key_env")
    if value == "":
        table.error("api_key_env", f"environment variable {name} is not set")
    return value or None


def _read_models(table: Table | None) -> dict[str, ModelRow] | None:
    """`[models."name"]`: a custom name for a generation, or specific faults for an existing model."""
    if table is None:
        return None
    rows: dict[str, ModelRow] = {}
    for name in table:
        inner = table.table(name)
        assert inner is not None
        generation = _read_name(inner, "generation", generation_problem)
        faults = _read_names(inner, "faults", fault_problem) or ()
        if generation is None and "generation" not in inner:
            generation = _known_generation(inner, name)
        inner.close(hints={"fault": " (did you mean 'faults'?)"})
        if "+" in name:
            table.error(name, "a model name cannot contain `+`, which separates the faults")
        elif generation is not None:
            rows[name] = ModelRow(generation=generation, faults=faults)
    return rows


def _known_generation(table: Table, name: str) -> str | None:
    from moonshim.simulator.host.models import generation_of

    generation = generation_of(name)
    if generation is None:
        table.problems.add(table.path, 'unknown model: set its generation, such as `generation = "k3"`')
    return generation
