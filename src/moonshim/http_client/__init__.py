"""A request to a host -> its status, its headers, and its bytes as they arrive."""

from moonshim.http_client.client import UpstreamClient
from moonshim.http_client.connection import Take
from moonshim.http_client.request import Deadlines, UpstreamRequest
from moonshim.http_client.response import GOODBYE_SECONDS, LAST_WORDS_SECONDS, UpstreamResponse

__all__ = [
    "GOODBYE_SECONDS",
    "LAST_WORDS_SECONDS",
    "Deadlines",
    "Take",
    "UpstreamClient",
    "UpstreamRequest",
    "UpstreamResponse",
]
