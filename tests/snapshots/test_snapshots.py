"""What becomes of the request of each client, whole, at a Chat host and at a Messages host: data that people can read.

`requests/<client>.json` is what the client sends; `<client>.<upstream>.json` beside this file is
what the host gets, and every change with its reason. `MOONSHIM_UPDATE_SNAPSHOTS=1` writes them anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from moonshim import prepare_request
from moonshim.engine.dialects.registry import UPSTREAM_DIALECTS
from moonshim.simulator.rules.request_rules import check_chat, check_messages

HERE: Final = Path(__file__).parent
CLIENTS: Final = sorted(path.stem for path in (HERE / "requests").glob("*.json"))
HOSTS: Final = {"openai_chat": "moonshot", "anthropic": "moonshot-anthropic"}
UPDATES: Final = os.environ.get("MOONSHIM_UPDATE_SNAPSHOTS") == "1"


def prepared(client: str, upstream: str) -> dict[str, Any]:
    asked = json.loads((HERE / "requests" / f"{client}.json").read_text())
    made = prepare_request(asked["body"], dialect=asked["dialect"], upstream=upstream, host=HOSTS[upstream])
    return {"body": made.body, "changes": msgspec.to_builtins(made.changes)}


@pytest.mark.parametrize("upstream", UPSTREAM_DIALECTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_host_gets_exactly_this(client: str, upstream: str) -> None:
    made, path = prepared(client, upstream), HERE / f"{client}.{upstream}.json"
    if UPDATES:
        path.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n")
    assert json.dumps(made) == json.dumps(json.loads(path.read_text())), (
        "see the paragraph on snapshots in CONTRIBUTING.md"
    )


@pytest.mark.parametrize("upstream", UPSTREAM_DIALECTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_host_accepts_it(client: str, upstream: str) -> None:
    check = check_chat if upstream == "openai_chat" else check_messages
    assert not check(prepared(client, upstream)["body"], generation="k2.6", host=HOSTS[upstream])


def test_no_snapshot_is_left_of_a_client_that_is_gone() -> None:
    expected = {f"{client}.{upstream}.json" for client in CLIENTS for upstream in UPSTREAM_DIALECTS}
    assert {path.name for path in HERE.glob("*.json")} == expected
