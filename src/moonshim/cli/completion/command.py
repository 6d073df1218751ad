"""`moonshim completion`: the name of a shell -> its completion script, on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from moonshim.cli import console

__all__ = ["SHELLS", "main", "parser"]

SHELLS: Final = ("bash", "zsh", "fish")
_EPILOG: Final = """\
bash, with the bash-completion package:
  mkdir -p ~/.local/share/bash-completion/completions
  moonshim completion bash > ~/.local/share/bash-completion/completions/moonshim

bash, without it: add this line to ~/.bashrc
  source <(moonshim completion bash)

zsh: write the script to a folder in your fpath
  mkdir -p ~/.zfunc
  moonshim completion zsh > ~/.zfunc/_moonshim
and make sure that ~/.zshrc has these lines
  fpath=(~/.zfunc $fpath)
  autoload -Uz compinit && compinit

fish:
  mkdir -p ~/.config/fish/completions
  moonshim completion fish > ~/.config/fish/completions/moonshim.fish

Open a new shell afterwards. After an upgrade of Moonshim, write the script
again to get the new commands and options."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim completion`; return the exit code."""
    given = parser().parse_args(list(argv))
    from moonshim.cli.completion.model import completion_model

    module = import_module(f"moonshim.cli.completion.{given.shell}")
    render: Callable[..., str] = module.render
    if sys.stdout is None:
        console.print_note("moonshim completion: cannot write to standard output: it is closed")
        return console.FAILED
    print(render(completion_model()), end="", flush=True)
    return console.DONE


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim completion",
        usage=f"moonshim completion {{{','.join(SHELLS)}}}",
        description="Print a script that lets your shell complete commands, options and their\n"
        "values when you press Tab.",
        epilog=_EPILOG,
    )
    made.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    return made
