"""One request -> what is sent back, and what was seen of it: the whole walk, from the key to the last frame."""

from __future__ import annotations

import hmac
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moonshim.engine.wire.json_codec import decode_object
from moonshim.errors import MoonshimError
from moonshim.simulator import rules
from moonshim.simulator.fault import Fault
from moonshim.simulator.faults import in_order
from moonshim.simulator.host import refusals
from moonshim.simulator.host.behaviours import nature_of
from moonshim.simulator.host.ids import answer_id
from moonshim.simulator.host.models import generation_of, tokens_by_default
from moonshim.simulator.host.parse_request import read_question
from moonshim.simulator.host.token_counts import Counter
from moonshim.simulator.http.seen import ReceivedRequest, RecordedRequest
from moonshim.simulator.request import Json, SimRequest, Wire
from moonshim.simulator.response import IntendedResponse, Model
from moonshim.simulator.rules import Objection
from moonshim.simulator.rules.shapes import shown
from moonshim.simulator.selection import (
    RequestedFaults,
    ScheduledFault,
    UnknownName,
    chaos_pick,
    read_model,
    read_names,
)
from moonshim.simulator.settings import SimulatorSettings
from moonshim.simulator.wire.playback import SimResponse, play, tell, trace_headers

__all__ = ["HEADER", "SEEN_AT_MOST", "SEEN_BYTES", "RequestRejected", "SimExchange"]

HEADER: Final = "x-moonshim-simulate"
"""A request's own faults and scenario: `markers-in-content, stall@2, five-rounds`."""
A_THOUGHT: Final = "I call a tool."
"""Of a model that thinks and calls, where its script or its author says nothing of that."""
COUNTED_AT_MOST: Final = 100_000
"""Faults that show only so many times, over all names of models."""
SEEN_AT_MOST: Final = 1000
SEEN_BYTES: Final = 64 * 2**20
"""How much of what was asked is kept: agents send the whole conversation again with each request."""


class RequestRejected(Exception):
    """Somebody on the walk objects, and it ends there."""

    def __init__(self, objection: Objection) -> None:
        super().__init__(objection.message)
        self.objection = objection


class SimExchange:
    """A host: what it is, and what it knows between two requests.

    `models` makes the model that plays a scenario, and of nothing the one of the settings. That one is made at once,
    and the faults of the settings are read at once, so that a mistake shows before anybody asks.
    """

    def __init__(
        self,
        settings: SimulatorSettings,
        *,
        models: Callable[[str | None], Model],
        clock: Callable[[], float],
        log: Callable[[RecordedRequest], None],
        log_failure: Callable[[BaseException, int], None],
        kept_bytes: int = SEEN_BYTES,
    ) -> None:
        self.settings, self.nature = settings, nature_of(settings.nature)
        self.requests: deque[RecordedRequest] = deque(maxlen=SEEN_AT_MOST)
        self._sizes: deque[int] = deque(maxlen=SEEN_AT_MOST)
        self._kept_bytes = kept_bytes
        self._models, self._made = models, dict[str | None, Model]({None: models(None)})
        self._clock, self._log, self._log_failure = clock, log, log_failure
        self._counter, self._assume, self._number = Counter(), frozenset(settings.assume), 0
        self._always, _ = read_names(", ".join(settings.faults))
        self._of_model = {name: read_names(", ".join(row.faults))[0] for name, row in settings.models.items()}
        self._shown: OrderedDict[bytes, int] = OrderedDict()

    def answer(self, asked: ReceivedRequest) -> SimResponse:
        """Whatever comes in, what the host would say to it goes out; `requests` has what became of it."""
        self._number += 1
        noted: dict[str, Any] = {"number": self._number, "wire": asked.wire}
        id = answer_id(asked.wire, self.settings.seed, self._number, asked.data)
        try:
            played = self._walk(asked, id, noted)
        except RequestRejected as refused:
            played = self.refuse(asked.wire, refused.objection)
            noted["problem"] = refused.objection.message
        except Exception as error:
            self._log_failure(error, self._number)
            why = str(error) if isinstance(error, MoonshimError) else f"the simulator failed: {error!r}"
            objection = Objection(why, status=500, kind="server_error")
            played = self.refuse(asked.wire, objection)
            noted["problem"] = objection.message
        self._keep(RecordedRequest(**noted, status=played.status, faults=played.faults), len(asked.data))
        return replace(played, headers=trace_headers(asked.wire, self.nature, id) | played.headers)

    def _walk(self, asked: ReceivedRequest, id: str, noted: dict[str, Any]) -> SimResponse:
        """From the key to the frames, as a host goes; `noted` is what is known of the request so far."""
        self.admit(asked.headers)
        body = noted["body"] = _object(asked.data)
        name = noted["asked_model"] = _name(body)
        wanted = self._wanted(name, asked.headers)
        question = noted["question"] = self._question(asked.wire, body, wanted.model)
        due = self._due(wanted, name, question)
        faults = in_order(one.fault for one in due)
        played = self._instead(faults, question)
        if played is None:
            intended = noted["intended"] = self._meant(wanted.scenario, question)
            played = play(
                question,
                intended,
                nature=self.nature,
                faults=faults,
                answer_id=id,
                created=int(self._clock()),
                tally=self._counter.tally(question, intended, renamed=self.nature.renames(question.wire)),
            )
        self._note_shown({self._use(one, name) for one in due if one.times and one.fault.name in played.faults})
        noted["imitated"] = played.imitated
        noted["missed"] = tuple(fault.name for fault in faults if fault.name not in played.faults)
        return played

    # -- the steps, in their order -----------------------------------------------------------------------------------

    def admit(self, headers: Mapping[str, str]) -> None:
        """The key, and who asks."""
        key = headers.get("authorization", "").removeprefix("Bearer ").strip() or headers.get("x-api-key", "")
        if self.settings.api_key and not hmac.compare_digest(key.encode(), self.settings.api_key.encode()):
            raise RequestRejected(refusals.NO_KEY)
        agent = headers.get("user-agent", "").lower()
        if self.nature.agents and not any(known in agent for known in self.nature.agents):
            raise RequestRejected(refusals.OTHER_AGENT)

    def _wanted(self, name: str, headers: Mapping[str, str]) -> RequestedFaults:
        """The model, and what goes wrong: in the model's name, in the header, in its row of the settings, in all."""
        try:
            wanted = read_model(name)
            more, scenario = read_names(headers.get(HEADER, ""))
        except UnknownName as error:
            raise RequestRejected(Objection(str(error))) from None
        faults = (*wanted.faults, *more, *self._of_model.get(wanted.model, ()), *self._always)
        return replace(wanted, faults=faults, scenario=wanted.scenario or scenario)

    def _question(self, wire: Wire, body: Json, model: str) -> SimRequest:
        generation = generation_of(model, self.settings.models)
        if generation is None and (model or _name(body)):  # `+split-bytes` names a fault, and no model
            raise RequestRejected(refusals.no_model(model))
        generation, host = generation or "other", self.nature.contract(wire)
        objection = rules.check(body, wire=wire, generation=generation, host=host, assume=self._assume)
        if objection is not None:
            raise RequestRejected(objection)
        question = read_question(body, wire=wire, model=model, generation=generation, host=host)
        if question.max_tokens is None:
            question = replace(question, max_tokens=tokens_by_default(generation, self._assume))
        return question

    def _due(self, wanted: RequestedFaults, name: str, question: SimRequest) -> list[ScheduledFault]:
        """The faults of this round, as long as they have not been shown as often as they should be."""
        due = [one for one in wanted.faults if one.is_due(question.round, self._shown.get(self._use(one, name), 0))]
        picked = chaos_pick(self.settings, self._number, question.wire, question.family, question.stream)
        return due if picked is None else [*due, ScheduledFault(picked)]

    def _use(self, chosen: ScheduledFault, name: str) -> bytes:
        """Under which key it is counted: those of the settings together, the others for each model that is asked."""
        place = "" if chosen in self._always else name
        return blake2b(f"{chosen} {place}".encode("utf-8", "surrogatepass"), digest_size=12).digest()

    def _note_shown(self, uses: Iterable[bytes]) -> None:
        """Names are the clients' own: those that were not asked for in the longest time are forgotten."""
        for use in uses:
            self._shown[use] = self._shown.pop(use, 0) + 1
        while len(self._shown) > COUNTED_AT_MOST:
            self._shown.popitem(last=False)

    def _instead(self, faults: Sequence[Fault], question: SimRequest) -> SimResponse | None:
        """What is sent instead of an answer, when one of the faults is of that kind."""
        for fault in faults:
            fits = fault.applies(wire=question.wire, family=question.family, stream=question.stream)
            if fault.status is not None and fits:
                return tell(fault.status, question.wire, faults=(fault.name,))
        return None

    def _meant(self, scenario: str | None, question: SimRequest) -> IntendedResponse:
        if scenario not in self._made:
            self._made[scenario] = self._models(scenario)
        intended = self._made[scenario].reply(question)
        if question.thinking and intended.calls and not intended.reasoning:
            # Such a model never calls without a thought, and the next request would be refused for want of it.
            return replace(intended, reasoning=A_THOUGHT)
        return intended

    # -- beside the walk ---------------------------------------------------------------------------------------------

    def misused(self, wire: Wire, place: str, objection: Objection, *, hint: str = "") -> SimResponse:
        """Refuse what did not get as far as the walk: a path that is not there, a body that is too large."""
        self._number += 1
        self._keep(
            RecordedRequest(
                number=self._number,
                wire=wire,
                place=place,
                status=objection.status,
                problem=objection.message,
                hint=hint,
            ),
            0,
        )
        return self.refuse(wire, objection)

    def _keep(self, seen: RecordedRequest, size: int) -> None:
        self.requests.append(seen)
        self._sizes.append(size)
        while sum(self._sizes) > self._kept_bytes and len(self.requests) > 1:
            self.requests.popleft()
            self._sizes.popleft()
        self._log(seen)

    def refuse(self, wire: Wire, objection: Objection) -> SimResponse:
        return tell(refusals.refusal(objection, wire=wire, nature=self.nature), wire)

    def count(self, asked: ReceivedRequest) -> int:
        """How many tokens a request for Messages would have; raises `RequestRejected`."""
        self.admit(asked.headers)
        body = _object(asked.data)
        wanted = self._wanted(_name(body), asked.headers)
        # A request to count says nothing of the answer.
        question = self._question(asked.wire, {"max_tokens": 1} | body, wanted.model)
        return Counter().tally(question, IntendedResponse(), renamed=self.nature.renames(question.wire)).prompt


def _object(data: bytes) -> Json:
    body = decode_object(data)
    if body is None:
        raise RequestRejected(_why_not(data))
    return body


def _why_not(data: bytes) -> Objection:
    if not data.strip():
        return refusals.not_json("it is empty")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return refusals.not_json(str(error))
    return Objection(f"Invalid request: the body must be an object, not {shown(found)}")


def _name(body: Json) -> str:
    name = body.get("model")
    return name if isinstance(name, str) else ""
