"""A process that writes a conversation, to be killed or to run out of room: `python -m tests.agent.writing_process`."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from moonshim.agent.history import HistoryFile, HistoryNotSaved
from moonshim.engine.values.conversation import Message, Text


def message(number: int, size: int = 2000) -> Message:
    return Message("user" if number % 2 == 0 else "assistant", (Text(f"{number} " + "x" * size),))


def write_for_ever(path: Path) -> None:
    """Say the number of each message once it is in the file."""
    history = HistoryFile.create(path)
    number = 0
    while True:
        history.add(message(number))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        number += 1


def write_into_a_full_disk(path: Path, room: int) -> None:
    """As many messages as there is room for, and three more; then there is room again."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    told: list[str] = []
    with HistoryFile.create(path) as history:
        number = 0
        while number < 20 and len(told) < 1:
            try:
                history.add(message(number))
            except HistoryNotSaved as error:
                told.append(str(error))
            number += 1
        for _ in range(3):
            history.add(message(number))  # told once is enough
            number += 1
        assert len(history.messages) == number
        sys.stdout.write(f"{number} {path.stat().st_size} {history.is_kept}\n")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        history.add(message(number))
        sys.stdout.write(f"{number + 1} {history.is_kept} {told[0]}\n")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_for_ever(Path(sys.argv[1]))
    else:
        write_into_a_full_disk(Path(sys.argv[1]), int(sys.argv[2]))
