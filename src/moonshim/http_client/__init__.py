"""A request for a host -> its status, its headers, and its bytes as they come."""

from moonshim.http_client.client import Upstream
from moonshim.http_client.request import Call, Deadlines
from moonshim.http_client.response import GOODBYE_SECONDS, LAST_WORDS_SECONDS, Answer

__all__ = ["GOODBYE_SECONDS", "LAST_WORDS_SECONDS", "Answer", "Call", "Deadlines", "Upstream"]
