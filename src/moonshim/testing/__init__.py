"""Tools for testing an agent: a simulated model with scripted replies, and hosts that replay recorded responses.

Both listen on a free local port, each in its own thread, so that any client can connect to them:

    with Simulator(model=Replies(IntendedResponse(text="hello"))).running() as host:
        my_agent(base_url=f"{host.url}/v1")

    with RecordedHost("tests/streams/answer.sse").running() as host:
        my_agent(base_url=f"{host.url}/v1")

Needs `moonshim[simulator]`.
"""

from moonshim.simulator.http.recorded import RecordedRequest
from moonshim.simulator.request import SimRequest
from moonshim.simulator.response import IntendedCall, IntendedResponse
from moonshim.simulator.server import Simulator
from moonshim.testing.recorded_host import RecordedHost, RecordedResponse
from moonshim.testing.replies import Replies

__all__ = [
    "IntendedCall",
    "IntendedResponse",
    "RecordedHost",
    "RecordedRequest",
    "RecordedResponse",
    "Replies",
    "SimRequest",
    "Simulator",
]
