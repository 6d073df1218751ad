"""The report on one provider -> its verdict, advice and figures, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from moonshim.doctor.check import Finding, ProviderReport
from moonshim.gateway.observe.log_lines import WORDS

__all__ = ["ADVICE", "advice", "as_json", "figures", "verdict"]

ADVICE: Final = {
    "cannot_prepare": "`moonshim config check` shows the chain and the cells",
    "unreachable": "is the address right, and the server up? HTTPS_PROXY, HTTP_PROXY and NO_PROXY count too",
    "nobody_here": "start the server, or put its port right in api_base_url",
    "other_scheme": "it answers under the other scheme: {hint}",
    "redirect": "if that is where it has moved to, put that address into api_base_url",
    "no_api": "look up the address of the API in the documentation of the host: api_base_url",
    "other_path": "it answers here: {hint}",
    "other_dialect": "{hint}",
    "authentication": "it must be a key of this very host, whole and not expired; "
    "api.moonshot.ai, api.moonshot.cn, api.kimi.com and api.kimi.ai do not take each other's",
    "permission": "the host knows the key, but does not let it do this: look at its account, or take another key",
    "agent_not_known": "this host answers only agents that it knows. The gateway passes on the User-Agent of your "
    "client: check with that (--user-agent)",
    "quota": "the key is known, but its account has nothing left: charge it, or take another key",
    "no_key": "set the variable that it is looked for in, or name one with api_key_env",
    "no_client_key": "this host is sent the client's own key, which is not known here: set api_key_env for the check",
    "one_of_the_keys": "take it out, or put it right: conversations that come to it fail",
    "no_such_model": "look up what the host calls it, or check another one (--model)",
    "other_models": "the host has these: {hint}",
    "model_not_served": "the host lists it, but does not serve it like this: look at its words, and at the account",
    "markers_not_read": "the chain of this model leaves them alone: set manualToolParsing, or leave `transformer` out",
    "cut_off": "try again, or check a model that thinks less (--model)",
    "not_called": "try again; if it stays so, the host does not offer tools to this model "
    "(vLLM: --enable-auto-tool-choice --tool-call-parser kimi_k2)",
    "called_otherwise": "try again; if it stays so, take another model, or this one at another host",
    "silent": "try again; --timeout lets it take longer",
    "page_before_it": "this is a proxy or a firewall before the host, not the host",
    "rate_limit": "the key has asked too often: try again in {hint} seconds",
    "overloaded": "the host has no room at the moment: try again in {hint} seconds",
    "timeout": "the host gave up on its own: try again later",
    "server": "the host is at fault: try again later, and tell its operator if it stays so",
    "request_refused": "if another server runs there than its address suggests, say so with `host` (docs/hosts.md)",
    "body_refused": "`{hint}` of your configuration is refused: remove it, or set a value that the host takes",
    "result_refused": "an agent would meet this at every call: tell the operator of the host",
    "empty_answer": "try again; `retry_empty_answer = true` lets the gateway do so",
}
"""What to do next, by the cause of a finding."""


def verdict(report: ProviderReport) -> str:
    """The report in one line."""
    wrong = next((finding for finding in report.findings if finding.state == "wrong"), None)
    if wrong is not None:
        return f"{wrong.topic}: {wrong.said}"
    words = _repairs_in_words(report.repairs)
    return "key, address, model and dialect are right; " + (f"mended: {words}" if words else "nothing to mend")


def advice(finding: Finding) -> str | None:
    """What to do next."""
    if finding.cause is None:
        return None
    return ADVICE[finding.cause].format(hint="a few" if finding.hint is None else finding.hint)


def as_json(report: ProviderReport) -> str:
    """One line of JSON, with the advice for each finding and the verdict."""
    fields = msgspec.to_builtins(report)
    for entry, finding in zip(fields["findings"], report.findings, strict=True):
        entry["advice"] = advice(finding)
    return msgspec.json.encode(fields | {"verdict": verdict(report)}).decode()


def figures(report: ProviderReport) -> Iterator[tuple[str, str]]:
    """Titles and texts: repairs, changes of the request, times and tokens."""
    if report.call is not None:
        yield "mended", _repairs_in_words(report.repairs) or "nothing"
    if report.changes:
        yield "adapted", " ".join(f"{rule}×{count}" for rule, count in report.changes.items())
    parts = [] if report.first_token_seconds is None else [f"first token {report.first_token_seconds:.2f} s"]
    parts.append(f"all {report.seconds:.2f} s")
    if report.input_tokens is not None or report.output_tokens is not None:
        counts = ("?" if number is None else f"{number:,}" for number in (report.input_tokens, report.output_tokens))
        parts.append("{} tokens in, {} out".format(*counts))
    yield "took", ", ".join(parts)


def _repairs_in_words(repairs: Mapping[str, int]) -> str:
    """Counts of repairs, by the labels that the gateway's log uses for them.

    >>> _repairs_in_words({"marker_call": 1, "id_missing": 2, "id_invalid": 1})
    'markers×1 ids×3'
    """
    words: Counter[str] = Counter()
    for rule, count in repairs.items():
        words[WORDS.get(rule, rule)] += count
    return " ".join(f"{word}×{count}" for word, count in words.items())
