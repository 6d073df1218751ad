"""`make demo`: starts a broken host and a gateway, holds one conversation with each, and shows what happened.

Exit code 0 only if the conversation broke without Moonshim and was perfect with it.
"""

from __future__ import annotations

import io
import re
import sys
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.live import Live

from moonshim.simulator import Simulator
from moonshim.simulator.render import render_prompt
from scripts.demo import page
from scripts.demo.processes import CannotStart, gateway_before
from scripts.demo.talk import Round, Run, converse

MODEL: Final = "kimi-k2.5+stop-with-calls@2+arguments-twice@4+markers-in-reasoning@5"
"""In rounds 2, 4 and 5 the host does wrong by itself; what breaks round 3 are the identifiers."""
_COUNTED: Final = re.compile(r'^moonshim_(repairs|changes)_total\{rule="([^"]+)"\} ([0-9.]+)', re.MULTILINE)
_ID_LINE: Final = re.compile(r"(?:<\|tool_call_begin\|>|## Return of )[^<\n]*")


class _Seen(NamedTuple):
    run: Run
    prompt: str
    """What the model was shown in the end."""


def main() -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no such characters shows others
    console = page.make_console()
    width = min(console.width, 150)
    console.print(page.beginning(MODEL), width=width)
    try:
        straight, mended, repairs = _both(console, width)
    except CannotStart as error:
        console.print(str(error), style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        return 130
    broken = straight.run.broke_in
    if broken is not None and len(mended.run.rounds) >= broken.number:
        console.print(page.bytes_seen(broken, mended.run.rounds[broken.number - 1], width=width))
        shown = [_ID_LINE.findall(seen.prompt) for seen in (straight, mended)]
        console.print(page.prompts_seen(*shown, width=width))
    console.print(page.repairs_made(repairs, width=width))
    console.print(page.verdict(straight.run, mended.run), width=width)
    console.print("[dim]make serve leaves such a gateway running; README.md goes on from there.[/dim]")
    return 0 if broken is not None and mended.run.perfect else 1


def _both(console: Console, width: int) -> tuple[_Seen, _Seen, list[page.Counted]]:
    left: list[Round] = []
    right: list[Round] = []
    scenario = Path(__file__).with_name("journey.toml")
    with (
        console.status("starting a simulated host, and a gateway before it …") as starting,
        Simulator(behaviour="selfhost", scenario=str(scenario)).running() as host,
        gateway_before(host.url, MODEL) as gateway,
    ):
        starting.stop()
        with Live(page.journey(left, right, width=width), console=console, auto_refresh=False) as live:

            def tell(rounds: list[Round], one: Round) -> None:
                rounds.append(one)
                live.update(page.journey(left, right, width=width), refresh=True)

            straight = _Seen(converse(host.url, MODEL, lambda one: tell(left, one)), _prompt(host))
            mended = _Seen(converse(gateway, MODEL, lambda one: tell(right, one)), _prompt(host))
        console.print()
        straight_to_it = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with straight_to_it.open(f"{gateway}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
    return straight, mended, [(what, rule, int(float(count))) for what, rule, count in _COUNTED.findall(metrics)]


def _prompt(host: Simulator) -> str:
    """What the model was shown last."""
    question = host.requests[-1].request if host.requests else None
    return "" if question is None else render_prompt(question)


if __name__ == "__main__":
    sys.exit(main())
