"""What the inspector says about each rule is what the reference pages say."""

from __future__ import annotations

from scripts.inspector_rules import TARGET, main, rules


def test_the_rules_are_those_of_the_reference_pages() -> None:
    assert len(rules()) > 100
    assert main(["--check"]) == 0, f"run python -m scripts.inspector_rules to write {TARGET.name}"
