"""A request for a host -> its status, its headers, and its bytes as they come."""

from moonshim.upstream.answer import GOODBYE_SECONDS, LAST_WORDS_SECONDS, Answer
from moonshim.upstream.call import Call, Deadlines
from moonshim.upstream.client import Upstream

__all__ = ["GOODBYE_SECONDS", "LAST_WORDS_SECONDS", "Answer", "Call", "Deadlines", "Upstream"]
