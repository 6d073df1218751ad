"""docs/reference/repairs.md and requests.md -> what the inspector says about each rule.

python -m scripts.inspector_rules           write src/moonshim/gateway/inspector/static/rules.json
python -m scripts.inspector_rules --check   exit 1 if it is out of date
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from moonshim.gateway.observe.log_lines import WORDS

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/moonshim/gateway/inspector/static/rules.json"
PAGES = {"repairs": ROOT / "docs/reference/repairs.md", "requests": ROOT / "docs/reference/requests.md"}
ROW = re.compile(r"^\| `([a-z0-9_]+)` \|(.+)\|\s*$", re.MULTILINE)


def rules() -> dict[str, dict[str, str]]:
    """By rule: its group, one sentence, and the page that describes it."""
    found: dict[str, dict[str, str]] = {}
    for page, path in PAGES.items():
        for rule, cells in ROW.findall(path.read_text()):
            texts = [_plain(cell) for cell in re.split(r"(?<!\\)\|", cells)]
            arrow = " → " if page == "repairs" else ". Reason: "
            sentence = f"{_capital(texts[0])}{arrow}{texts[1]}." if len(texts) > 1 else f"{_capital(texts[0])}."
            found.setdefault(rule, {"group": WORDS.get(rule, rule), "sentence": sentence, "page": page})
    return found


def _plain(cell: str) -> str:
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", cell.strip())
    return text.replace("`", "").replace("\\|", "|").rstrip(".")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def main(arguments: list[str]) -> int:
    wanted = json.dumps(rules(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if "--check" in arguments:
        if not TARGET.exists() or TARGET.read_text() != wanted:
            print(f"{TARGET.relative_to(ROOT)} is out of date: run python -m scripts.inspector_rules")
            return 1
        return 0
    TARGET.write_text(wanted)
    print(f"{TARGET.relative_to(ROOT)}: {len(rules())} rules")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
