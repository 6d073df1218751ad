"""Exceptions: those that users can meet are in one tree, which the docstring of `errors.py` shows."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import cache
from typing import Final

import moonshim
from moonshim import errors
from moonshim.errors import MoonshimError

INTERNAL: Final = {
    # Caught where they are raised, or by the only caller.
    "agent.execution.cancellation.Stopped",
    "agent.schema.signatures.ArgumentsInvalid",
    "config.files.json_file.NotJson",
    "documents.pdf_worker.Unreadable",
    "engine.request.schema.bounds.SchemaTooLarge",
    "engine.request.schema.merge.Unsatisfiable",
    "engine.signing.UnknownSigningKey",
    "http_client.connection.ConnectionFailed",
    "http_client.content_encoding.BadContent",
    "setup.questions.Cancelled",
    "simulator.http.exchange.RequestRejected",
    "simulator.http.transport.BodyTooLarge",
    "simulator.http.transport.ClientDisconnected",
    "simulator.rules.schema_words.SchemaRejected",
    "web_search.command.CommandFailed",
    "web_search.run.SearchFailed",
}
PROGRAMS: Final = ("moonshim.cli.", "moonshim.gateway.", "moonshim.doctor.", "moonshim.http_server.")
"""Nobody imports these: what they raise ends in a message or a response."""


@cache
def exceptions() -> frozenset[type[BaseException]]:
    modules = [one.name for one in pkgutil.walk_packages(moonshim.__path__, "moonshim.") if "__main__" not in one.name]
    return frozenset(
        value
        for module in modules
        for value in vars(importlib.import_module(module)).values()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and value.__module__.startswith("moonshim.")
        and not value.__name__.startswith("_")
    )


def test_exceptions_that_users_can_meet_are_in_the_tree() -> None:
    others = {one for one in exceptions() if not issubclass(one, MoonshimError)}
    named = {f"{one.__module__}.{one.__qualname__}" for one in others if not one.__module__.startswith(PROGRAMS)}
    assert named == {f"moonshim.{name}" for name in INTERNAL}


def test_the_docstring_shows_the_whole_tree() -> None:
    lines = re.findall(r"^[│├└─ ]*(?:── )?([A-Z]\w+(?:, [A-Z]\w+)*)(?:  |$)", errors.__doc__ or "", re.MULTILINE)
    shown = [name for line in lines for name in line.split(", ")]
    tree = {one.__name__ for one in exceptions() if issubclass(one, MoonshimError)}
    assert sorted(shown) == sorted(tree)


def test_the_docstring_shows_each_below_its_base() -> None:
    by_name = {one.__name__: one for one in exceptions() if issubclass(one, MoonshimError)}
    parent = MoonshimError
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"(│   )?[├└]── (\w+)", line)
        if found is None:
            continue
        shown = by_name[found[2]]
        assert (parent if found[1] else MoonshimError) in shown.__bases__, line
        parent = parent if found[1] else shown


def test_each_has_a_code_a_status_and_says_whether_a_retry_can_help() -> None:
    for one in exceptions():
        if issubclass(one, MoonshimError):
            assert re.fullmatch(r"[a-z_]+", one.code), one
            assert 400 <= one.status < 600, one
            assert isinstance(one.retryable, bool), one
