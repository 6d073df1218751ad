"""`[aliases]` -> the models that a name stands for, in turn; an alias to nothing is a mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moonshim.config.model import ProviderConfig
from moonshim.config.problems import nearest
from moonshim.config.tables.table import Table

__all__ = ["check_aliases", "leads_somewhere", "read_aliases"]


def read_aliases(table: Table | None) -> dict[str, tuple[str, ...]]:
    aliases: dict[str, tuple[str, ...]] = {}
    for name in table or ():
        assert table is not None
        targets = table.texts(name) if isinstance(table.raw(name), list) else None
        if targets is None:
            target = table.text(name)
            targets = (target,) if target is not None else None
        elif not table.raw(name):
            table.error(name, "this leads nowhere: name a model, or several to be asked in turn")
        if targets:
            aliases[name] = tuple(target.strip() for target in targets)
    return aliases


def check_aliases(
    aliases: Mapping[str, tuple[str, ...]], providers: Sequence[ProviderConfig], root: Table, *, soft: bool
) -> None:
    """Tell of targets that no provider has. `soft`: somebody else wrote them, and a note is enough."""
    names = [name for one in providers for model in one.models for name in (model, f"{one.name}/{model}")]
    for alias, targets in aliases.items():
        for target in targets:
            if leads_somewhere(target, providers):
                continue
            if soft:
                listed = nearest(target, [f"{one.name},{model}" for one in providers for model in one.models])
                root.problems.note(("Router",), f"no provider has `{target}`, which `{alias}` stands for{listed}")
            else:
                hint = nearest(target, [*names, *(f"{one.name}/" for one in providers)])
                root.problems.add(("aliases", alias), f"no provider has the model `{target}`{hint}")


def leads_somewhere(target: str, providers: Sequence[ProviderConfig]) -> bool:
    """Whether a provider has this model, named alone or behind the provider.

    >>> provider = ProviderConfig(name="vllm", api_base_url="http://localhost:8000", models=("k2",))
    >>> [leads_somewhere(target, [provider]) for target in ("k2", "vllm/k2", "vllm,K2", "vllm/k3")]
    [True, True, True, False]
    """
    wanted = target.lower()
    for provider in providers:
        models = {model.lower() for model in provider.models}
        if wanted in models:
            return True
        name = provider.name.lower()
        if wanted.startswith((f"{name}/", f"{name},")):
            model = wanted[len(name) + 1 :].strip()
            if model and (not models or model in models):
                return True
    return False
