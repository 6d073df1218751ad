"""One request -> the response to send and the record of it: every step, from the API key to the last frame."""

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
from moonshim.simulator.host.behaviours import HostBehaviour, find_behaviour
from moonshim.simulator.host.ids import answer_id
from moonshim.simulator.host.models import generation_of, tokens_by_default
from moonshim.simulator.host.parse_request import parse_request
from moonshim.simulator.host.token_counts import BLOCK, MEASURED_BLOCK, Counter
from moonshim.simulator.host.tokenizer import Tokenizer
from moonshim.simulator.http.pages import quota_page
from moonshim.simulator.http.paths import PathKind
from moonshim.simulator.http.recorded import ReceivedRequest, RecordedRequest
from moonshim.simulator.request import Json, SimRequest, Wire
from moonshim.simulator.response import IntendedResponse, Model
from moonshim.simulator.rules import Objection
from moonshim.simulator.rules.shapes import describe
from moonshim.simulator.selection import (
    RequestedFaults,
    ScheduledFault,
    UnknownName,
    chaos_pick,
    read_model,
    read_names,
)
from moonshim.simulator.settings import SimulatorSettings
from moonshim.simulator.wire.playback import SimResponse, error_response, simulate_response, trace_headers
from moonshim.simulator.wire.truncate import think_longer, truncate

__all__ = ["HEADER", "SEEN_AT_MOST", "SEEN_BYTES", "RequestRejected", "SimExchange"]

HEADER: Final = "x-moonshim-simulate"
"""Faults and scenario for a single request: `markers-in-content, stall@2, five-rounds`."""
_SECRET: Final = frozenset({"authorization", "x-api-key", "cookie"})
A_THOUGHT: Final = "I will call a tool."
"""The reasoning before a call, where a thinking model's script gives none."""
COUNTED_AT_MOST: Final = 100_000
"""Maximum number of counters for faults with a limit (`*1`), over all model names."""
SEEN_AT_MOST: Final = 1000
SEEN_BYTES: Final = 64 * 2**20
"""Limits of the recorded requests: agents send the whole conversation with each request."""


class RequestRejected(Exception):
    """A step rejects the request."""

    def __init__(self, objection: Objection) -> None:
        super().__init__(objection.message)
        self.objection = objection


class SimExchange:
    """A simulated host, and its state between requests.

    `models` loads the model for a scenario, or for None the one from the settings. That model and the faults of the
    settings are loaded in the constructor, so that mistakes show before the first request.
    """

    def __init__(
        self,
        settings: SimulatorSettings,
        *,
        models: Callable[[str | None], Model],
        clock: Callable[[], float],
        log: Callable[[RecordedRequest], None],
        log_failure: Callable[[BaseException, int], None],
        tokenizer: Tokenizer | None = None,
        max_recorded_bytes: int = SEEN_BYTES,
    ) -> None:
        self.settings: SimulatorSettings = settings
        self.behaviour: HostBehaviour = find_behaviour(settings.behaviour)
        has: dict[PathKind, bool] = {
            "count": "counts-tokens" in settings.assume,
            "usages": self.behaviour.reports_quota,
        }
        self.missing_paths: frozenset[PathKind] = frozenset(kind for kind in has if not has[kind])
        """What only other hosts have."""
        self.requests: deque[RecordedRequest] = deque(maxlen=SEEN_AT_MOST)
        self._sizes: deque[int] = deque(maxlen=SEEN_AT_MOST)
        self._max_recorded_bytes = max_recorded_bytes
        self._models, self._loaded_models = models, dict[str | None, Model]({None: models(None)})
        self._clock, self._log, self._log_failure = clock, log, log_failure
        self._assume, self._number = frozenset(settings.assume), 0
        expires = "cache-writes" in self._assume
        self._counter = Counter(
            block=MEASURED_BLOCK if expires else BLOCK, clock=clock if expires else None, tokenizer=tokenizer
        )
        self._default_faults, _ = read_names(", ".join(settings.faults))
        self._model_faults = {name: read_names(", ".join(row.faults))[0] for name, row in settings.models.items()}
        self._times_applied: OrderedDict[bytes, int] = OrderedDict()

    def answer(self, received: ReceivedRequest) -> SimResponse:
        """The host's response to any request; the outcome is recorded in `requests`."""
        self._number += 1
        record: dict[str, Any] = {"number": self._number, "wire": received.wire}
        id = answer_id(received.wire, self.settings.seed, self._number, received.data)
        try:
            response = self._process(received, id, record)
        except RequestRejected as refused:
            response = self.refuse(received.wire, refused.objection)
            record["problem"] = refused.objection.message
        except Exception as error:
            self._log_failure(error, self._number)
            why = str(error) if isinstance(error, MoonshimError) else f"internal error in the simulator: {error!r}"
            objection = Objection(why, status=500, kind="server_error")
            response = self.refuse(received.wire, objection)
            record["problem"] = objection.message
        self._record(RecordedRequest(**record, status=response.status, faults=response.faults), len(received.data))
        return replace(response, headers=trace_headers(received.wire, self.behaviour, id) | response.headers)

    def _process(self, received: ReceivedRequest, id: str, record: dict[str, Any]) -> SimResponse:
        """From the API key to the frames, in a host's order; `record` collects the fields for `RecordedRequest`."""
        record["headers"] = {name: value for name, value in received.headers.items() if name not in _SECRET}
        self.authorize(received.headers)
        body = record["body"] = _object(received.data)
        name = record["asked_model"] = _name(body)
        requested = self._requested_faults(name, received.headers)
        request = record["request"] = self._parse_request(received.wire, body, requested.model)
        due = self._due_faults(requested, name, request)
        faults = in_order(one.fault for one in due)
        response = self._replacement(faults, request)
        if response is None:
            intended = record["intended"] = self._ask_model(requested.scenario, request)
            response = simulate_response(
                request,
                intended,
                behaviour=self.behaviour,
                faults=faults,
                answer_id=id,
                created=int(self._clock()),
                tally=self._counter.tally(
                    request,
                    truncate(intended, request).intended,
                    renamed=self.behaviour.renames(request.wire),
                    classes=self.behaviour.cache_classes if request.family == "k3" else (),
                ),
            )
        self._count_applied(
            {self._count_key(one, name) for one in due if one.times and one.fault.name in response.faults}
        )
        record["imitated"], record["tally"] = response.imitated, response.tally
        record["missed"] = tuple(fault.name for fault in faults if fault.name not in response.faults)
        return response

    # -- the steps, in their order -----------------------------------------------------------------------------------

    def authorize(self, headers: Mapping[str, str], *, any_agent: bool = False) -> None:
        """Check the API key and, unless any agent will do, the User-Agent."""
        key = headers.get("authorization", "").removeprefix("Bearer ").strip() or headers.get("x-api-key", "")
        if self.settings.api_key and not hmac.compare_digest(key.encode(), self.settings.api_key.encode()):
            raise RequestRejected(refusals.NO_KEY)
        agent = headers.get("user-agent", "").lower()
        if self.behaviour.agents and not any_agent and not any(known in agent for known in self.behaviour.agents):
            raise RequestRejected(refusals.OTHER_AGENT)

    def _requested_faults(self, name: str, headers: Mapping[str, str]) -> RequestedFaults:
        """The model, and the faults for this request: from the model's name, the header, the model's row in the
        settings, and the settings for all."""
        try:
            requested = read_model(name)
            more, scenario = read_names(headers.get(HEADER, ""))
        except UnknownName as error:
            raise RequestRejected(Objection(str(error))) from None
        faults = (*requested.faults, *more, *self._model_faults.get(requested.model, ()), *self._default_faults)
        return replace(requested, faults=faults, scenario=requested.scenario or scenario)

    def _parse_request(self, wire: Wire, body: Json, model: str) -> SimRequest:
        generation = generation_of(model, self.settings.models)
        if generation is None and (model or _name(body)):  # `+split-bytes` names a fault, but no model
            raise RequestRejected(refusals.no_model(model))
        generation, host = generation or "other", self.behaviour.contract(wire)
        objection = rules.check(body, wire=wire, generation=generation, host=host, assume=self._assume)
        if objection is not None:
            raise RequestRejected(objection)
        request = parse_request(body, wire=wire, model=model, generation=generation, host=host)
        if request.max_tokens is None:
            request = replace(request, max_tokens=tokens_by_default(generation, self._assume))
        return request

    def _due_faults(self, requested: RequestedFaults, name: str, request: SimRequest) -> list[ScheduledFault]:
        """The faults of this round that have not yet been applied as often as requested."""
        due = [
            one
            for one in requested.faults
            if one.is_due(request.round, self._times_applied.get(self._count_key(one, name), 0))
        ]
        picked = chaos_pick(self.settings, self._number, request.wire, request.family, request.stream)
        return due if picked is None else [*due, ScheduledFault(picked)]

    def _count_key(self, chosen: ScheduledFault, name: str) -> bytes:
        """The key of a fault's counter: shared for faults from the settings, per requested model for the others."""
        place = "" if chosen in self._default_faults else name
        return blake2b(f"{chosen} {place}".encode("utf-8", "surrogatepass"), digest_size=12).digest()

    def _count_applied(self, uses: Iterable[bytes]) -> None:
        """Clients choose model names, so the least recently used counters are dropped."""
        for use in uses:
            self._times_applied[use] = self._times_applied.pop(use, 0) + 1
        while len(self._times_applied) > COUNTED_AT_MOST:
            self._times_applied.popitem(last=False)

    def _replacement(self, faults: Sequence[Fault], request: SimRequest) -> SimResponse | None:
        """The response to send instead, if one of the faults replaces it."""
        for fault in faults:
            fits = fault.applies(wire=request.wire, family=request.family, stream=request.stream)
            if fault.status is not None and fits:
                return error_response(fault.status, request.wire, faults=(fault.name,))
        return None

    def _ask_model(self, scenario: str | None, request: SimRequest) -> IntendedResponse:
        if scenario not in self._loaded_models:
            self._loaded_models[scenario] = self._models(scenario)
        intended = self._loaded_models[scenario].reply(request)
        if request.thinking:
            intended = replace(intended, reasoning=think_longer(intended.reasoning, self.settings.thinking_tokens))
        if request.thinking and intended.calls and not intended.reasoning:
            # A thinking model never calls without reasoning, and the next request would be refused for lack of it.
            return replace(intended, reasoning=A_THOUGHT)
        return intended

    # -- other requests ---------------------------------------------------------------------------------------------

    def reject(self, wire: Wire, place: str, objection: Objection, *, hint: str = "") -> SimResponse:
        """Refuse a request before it is processed: an unknown path, a body that is too large."""
        self._number += 1
        self._record(
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

    def _record(self, recorded: RecordedRequest, size: int) -> None:
        self.requests.append(recorded)
        self._sizes.append(size)
        while sum(self._sizes) > self._max_recorded_bytes and len(self.requests) > 1:
            self.requests.popleft()
            self._sizes.popleft()
        self._log(recorded)

    def refuse(self, wire: Wire, objection: Objection) -> SimResponse:
        return error_response(refusals.refusal(objection, wire=wire, behaviour=self.behaviour), wire)

    def quota(self, headers: Mapping[str, str]) -> Json:
        """The used part of a subscription. kimi-code reads it without a User-Agent of its own."""
        self.authorize(headers, any_agent=True)
        return quota_page(self._clock())

    def count(self, received: ReceivedRequest) -> int:
        """Count the tokens of a Messages request; raises `RequestRejected`."""
        self.authorize(received.headers)
        body = _object(received.data)
        requested = self._requested_faults(_name(body), received.headers)
        # A token-count request has no fields about the response.
        request = self._parse_request(received.wire, {"max_tokens": 1} | body, requested.model)
        return self._counter.count_prompt(request, renamed=self.behaviour.renames(request.wire))


def _object(data: bytes) -> Json:
    body = decode_object(data)
    if body is None:
        raise RequestRejected(_not_an_object(data))
    return body


def _not_an_object(data: bytes) -> Objection:
    if not data.strip():
        return refusals.not_json("it is empty")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return refusals.not_json(str(error))
    return Objection(f"Invalid request: the body must be an object, not {describe(found)}")


def _name(body: Json) -> str:
    name = body.get("model")
    return name if isinstance(name, str) else ""
