"""What docs/reference/hosts.md says of the table is what the table says."""

from __future__ import annotations

from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.hosts.table import HOSTS
from scripts.host_tables import BEGIN, END, PAGE, tables


def test_the_tables_of_the_page_are_made_from_the_data() -> None:
    page = PAGE.read_text("utf-8")
    written = page.partition(BEGIN)[2].partition(END)[0]
    assert written == tables(), "run: python -m scripts.host_tables"


def test_every_cell_has_a_meaning() -> None:
    named = [line.split("`")[1] for line in tables().partition("\n## Generations")[0].splitlines() if line[:3] == "| `"]
    assert named == list(HostProfile.__struct_fields__)


def test_every_host_has_its_place() -> None:
    assert [host for host in HOSTS if host != "generic" and f"\n### {host}\n" not in tables()] == []


def test_cells_that_the_page_calls_unverified_exist() -> None:
    unverified = PAGE.read_text("utf-8").partition("## Unconfirmed values")[2]
    starts = [line[3:].partition("`")[0] for line in unverified.splitlines() if line.startswith("- `")]
    assert starts
    assert [name for name in starts if name not in HostProfile.__struct_fields__] == []
