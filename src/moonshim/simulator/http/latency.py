"""The pieces of a response and a speed -> the time at which each is due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from moonshim.simulator.fault import Piece, Stall

__all__ = ["Latency"]


class Latency(Struct, frozen=True):
    """How fast a model writes. Times are in seconds from the start, so that delays do not add up."""

    tokens_per_second: float = 0.0
    """0: as fast as they are read."""
    first_token_ms: float = 0.0

    def moments(self, pieces: Sequence[Piece], tokens: int) -> Iterator[tuple[float, Piece]]:
        """Each piece with its time; the tokens are spread evenly over the pieces.

        >>> list(Latency(10, 500).moments([b"a", b"b", Stall(2), b"c"], 3))
        [(0.5, b'a'), (0.6, b'b'), (0.6, Stall(seconds=2)), (2.7, b'c')]
        """
        count = sum(isinstance(piece, bytes) for piece in pieces)
        step = self.writing(tokens) / count if count else 0.0
        waited, sent = self.first_token_ms / 1000, 0
        for piece in pieces:
            moment = waited + step * max(sent - isinstance(piece, Stall), 0)
            yield round(moment, 6), piece
            if isinstance(piece, Stall):
                waited += piece.seconds
            sent += isinstance(piece, bytes)

    def writing(self, tokens: int) -> float:
        """Seconds it takes to write `tokens`."""
        return tokens / self.tokens_per_second if self.tokens_per_second > 0 else 0.0

    def whole(self, tokens: int) -> float:
        """Seconds until a non-streaming response arrives."""
        return self.first_token_ms / 1000 + self.writing(tokens)
