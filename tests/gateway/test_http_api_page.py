"""docs/reference/http-api.md lists the routes, headers and error codes of the code, and no others."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, Final, get_args

from starlette.routing import Route

from moonshim.config import Config
from moonshim.engine.dialects.registry import dialect_named
from moonshim.errors import Problem, ProblemKind
from moonshim.gateway.outbound.response_headers import _TO_CLIENT, _TO_HOST
from moonshim.gateway.routes import routes_of
from moonshim.gateway.state import GatewayState
from moonshim.store.memory import MemoryStore

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = (ROOT / "docs" / "reference" / "http-api.md").read_text("utf-8")


def rows(title: str) -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    section = PAGE.partition(f"# {title}\n")[2]
    table = re.search(r"^\|.*?(?=\n\n|\Z)", section, re.DOTALL | re.MULTILINE)
    assert table is not None, title
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def routes() -> dict[tuple[str, str], Route]:
    async def find() -> dict[tuple[str, str], Route]:
        state = GatewayState(Config(), MemoryStore(1 << 20), b"x" * 32)
        found: dict[tuple[str, str], Route] = {}
        for route in routes_of(state):
            assert isinstance(route, Route)
            path = route.path.replace(":path}", "}")
            for method in (route.methods or {"any"}) - {"HEAD"}:
                found[method, path] = route
        await state.close()
        return found

    return asyncio.run(find())


def test_every_route_of_the_gateway_is_on_the_page_and_no_other() -> None:
    listed = {(method.strip("`"), path.strip("`")) for method, path, *_ in rows("Routes")}
    known = set(routes())
    api = {(method, path) for method, path in known if method != "any"}
    # Other methods on these paths, and the paths without /v1, are described below the table.
    own = {(method, path) for method, path in known if method == "any" and path not in {path for _, path in api}}
    assert listed == {(method, path) for method, path in api if path.startswith("/v1/")} | own
    assert {path for _, path in api} == {path for _, path in listed - own} | {
        path.removeprefix("/v1") for _, path in listed - own
    }


def test_the_page_has_the_dialect_of_every_route() -> None:
    known = routes()
    for method, path, dialect, key, _ in rows("Routes"):
        endpoint: Any = known[method.strip("`"), path.strip("`")].endpoint
        if "inspector" in path:  # it checks its callers itself: tests/inspector/test_access.py
            continue
        assert (key == "no") is endpoint._open, path
        if key == "yes":
            assert dialect.strip("`") == endpoint._dialect.name, path


def test_the_page_has_every_header_that_is_passed_on() -> None:
    section = PAGE.partition("## Request headers\n")[2].partition("\n## Create")[0]
    named = set(re.findall(r"`([a-z-]+)`", section))
    assert set().union(*_TO_HOST.values()) <= named
    assert set(_TO_CLIENT) | set(_TO_CLIENT.values()) <= named


def test_the_page_has_the_error_types_of_every_dialect() -> None:
    table = {row[0].strip("`"): row[1:] for row in rows("Errors")}
    assert set(table) == set(get_args(ProblemKind))
    for kind, cells in table.items():
        for dialect, cell in zip(("openai_chat", "openai_responses", "anthropic"), cells, strict=True):
            error = dialect_named(dialect).render_problem(Problem(status=400, kind=kind, message="m"))["error"]  # type: ignore[arg-type]  # compared above
            words = [error["type"], *([error["code"]] if error.get("code") else [])]
            assert re.findall(r"`(\w+)`", cell) == words, (kind, dialect)


def test_the_page_has_every_error_code_of_the_gateway() -> None:
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/moonshim/gateway").rglob("*.py"))
    codes = set(re.findall(r'code="(\w+)"', source)) | set(re.findall(r'_refusal\(.*?code: str = "(\w+)"', source))
    listed = {code for row in rows("Errors of the gateway") for code in re.findall(r"`(\w+)`", row[1])}
    assert len(codes) >= 10
    assert codes <= listed
