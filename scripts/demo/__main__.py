"""`make demo`: starts a faulty host and a gateway, runs one conversation with each, and shows the difference.

Exit code 0 only if the conversation failed without Moonshim and succeeded with it. `--svg FILE` also draws the
rounds and the verdict as a picture.
"""

from __future__ import annotations

import argparse
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
from scripts.demo.picture import WIDTH, draw
from scripts.demo.processes import CannotStart, gateway_before
from scripts.demo.talk import Round, Run, converse

MODEL: Final = "kimi-k2.5+stop-with-calls@2+arguments-twice@4+markers-in-reasoning@5"
"""The host has faults in rounds 2, 4 and 5; round 3 fails because of the tool call ids."""
_COUNTED: Final = re.compile(r'^moonshim_(repairs|changes)_total\{rule="([^"]+)"\} ([0-9.]+)', re.MULTILINE)
_ID_LINE: Final = re.compile(r"(?:<\|tool_call_begin\|>|## Return of )[^<\n]*")


class _Seen(NamedTuple):
    run: Run
    prompt: str
    """The last prompt that the model received."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.demo", description="One conversation, without and with Moonshim."
    )
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="also draw the rounds and the verdict as an SVG picture"
    )
    picture: Path | None = parser.parse_args(arguments).svg
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the terminal's encoding may lack some characters
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
    console.print(
        "[dim]Next: `make serve` starts the gateway, and README.md shows how to connect your own client.[/dim]"
    )
    if picture is not None:
        rounds = page.journey(straight.run.rounds, mended.run.rounds, width=WIDTH)
        picture.write_text(draw(rounds, page.verdict(straight.run, mended.run), title="make demo"), "utf-8")
    return 0 if broken is not None and mended.run.perfect else 1


def _both(console: Console, width: int) -> tuple[_Seen, _Seen, list[page.Counted]]:
    left: list[Round] = []
    right: list[Round] = []
    scenario = Path(__file__).with_name("journey.toml")
    with (
        console.status("starting a simulated host and a gateway …") as starting,
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
    """The last prompt that the model received."""
    question = host.requests[-1].request if host.requests else None
    return "" if question is None else render_prompt(question)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
