"""The report on one provider -> its verdict, advice and figures, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from moonshim.doctor.findings import Finding, ProviderReport
from moonshim.doctor.subscription import describe_quota
from moonshim.gateway.observe.log_lines import describe_repairs

__all__ = ["ADVICE", "advice", "as_json", "figures", "verdict"]

ADVICE: Final = {
    "cannot_prepare": "run `moonshim config check` to see the transformer chain and the host profile overrides",
    "unreachable": "check the address and that the server is up; HTTPS_PROXY, HTTP_PROXY and NO_PROXY apply too",
    "nobody_here": "start the server, or correct the port in api_base_url",
    "other_scheme": "the server uses the other scheme: {hint}",
    "redirect": "if the API has moved there, set api_base_url to that address",
    "no_api": "look up the API address in the host's documentation and set api_base_url",
    "other_path": "the API is here: {hint}",
    "other_dialect": "set {hint}",
    "authentication": "use a complete, unexpired key of this host; api.moonshot.ai, api.moonshot.cn, api.kimi.com and "
    "api.kimi.ai do not accept each other's keys",
    "no_login": "run `kimi` and log in, or use an API key (api_key_env)",
    "login_expired": "run `kimi` once: kimi-code refreshes its login while it runs",
    "permission": "the key is valid but not permitted to do this; check the account, or use another key",
    "agent_not_known": "this host accepts only agents that it knows; use one of them as your client, since the gateway "
    "passes on the client's User-Agent",
    "quota": "the key is valid, but its account has no credit left; top it up, or use another key",
    "no_key": "set the environment variable for this provider, or name one with api_key_env",
    "no_client_key": "the gateway passes on the client's own key here; set api_key_env for the check",
    "one_of_the_keys": "correct or remove this key; conversations that use it fail",
    "no_such_model": "look up the host's name for this model, or check another one (--model)",
    "other_models": "the host has: {hint}",
    "model_not_served": "the host lists this model but rejects the request; read its message, and check the account",
    "markers_not_read": "the transformer chain does not parse them; set manualToolParsing, or remove `transformer`",
    "cut_off": "try again, or check a model that reasons less (--model)",
    "not_called": "try again; if it happens again, the host does not support tools for this model "
    "(vLLM: --enable-auto-tool-choice --tool-call-parser kimi_k2)",
    "called_otherwise": "try again; if it happens again, use another model, or this model at another host",
    "silent": "try again later",
    "connection_closed": "try again; if it happens again, look at the log of the host",
    "page_before_it": "check api_base_url, and any proxy, firewall or sign-in page in front of the host",
    "rate_limit": "rate limit reached; try again in {hint} seconds",
    "overloaded": "the host is overloaded; try again in {hint} seconds",
    "timeout": "the host timed out; try again later",
    "server": "the host failed; try again later, and contact its operator if it keeps failing",
    "context_exceeded": "check the context window that the host gives this model, or another model (--model)",
    "request_refused": "read the message of the host; if the server is not the one that its address suggests, set "
    "`host` (docs/reference/hosts.md)",
    "body_refused": "the host rejects `{hint}` of your configuration; remove it, or set a value that the host accepts",
    "result_refused": "this would break every tool call of an agent; contact the operator of the host",
    "empty_answer": "try again; unless `retry_empty_answer = false`, the gateway asks again by itself",
    "unusable_answer": "the host works, but what the model wrote cannot be used; try again, or check another model "
    "(--model)",
}
"""What to do next, by the cause of a finding."""
_OPTIONS: Final = {
    "agent_not_known": "check with that one, such as `--user-agent claude-cli/2.0`",
    "silent": "or with a longer `--timeout`",
}
"""What the options of `moonshim doctor` can do about it."""


def verdict(report: ProviderReport) -> str:
    """The report in one line."""
    wrong = next((finding for finding in report.findings if finding.state == "wrong"), None)
    if wrong is not None:
        return f"{wrong.topic}: {wrong.said}"
    words = describe_repairs(report.repairs)
    return "key, address, model and dialect are correct; " + (f"repairs: {words}" if words else "no repairs needed")


def advice(finding: Finding, *, of_doctor: bool = True) -> str | None:
    """What to do next. Other commands do not have all options of `moonshim doctor`."""
    if finding.cause is None:
        return None
    option = f"; {_OPTIONS[finding.cause]}" if of_doctor and finding.cause in _OPTIONS else ""
    return ADVICE[finding.cause].format(hint="a few" if finding.hint is None else finding.hint) + option


def as_json(report: ProviderReport) -> str:
    """One line of JSON, with the advice for each finding and the verdict."""
    fields = msgspec.to_builtins(report)
    for entry, finding in zip(fields["findings"], report.findings, strict=True):
        entry["advice"] = advice(finding)
    return msgspec.json.encode(fields | {"verdict": verdict(report)}).decode()


def figures(report: ProviderReport) -> Iterator[tuple[str, str]]:
    """Labels and values: repairs, changes to the requests, quota, time and tokens."""
    if report.call is not None:
        yield "repairs", describe_repairs(report.repairs) or "none"
    if report.changes:
        yield "changes", " ".join(f"{rule}×{count}" for rule, count in report.changes.items())
    for quota in report.quota:
        yield "quota", describe_quota(quota)
    parts = [] if report.first_token_seconds is None else [f"first token {report.first_token_seconds:.2f} s"]
    parts.append(f"total {report.seconds:.2f} s")
    if report.input_tokens is not None or report.output_tokens is not None:
        counts = ("?" if number is None else f"{number:,}" for number in (report.input_tokens, report.output_tokens))
        parts.append("{} tokens in, {} out".format(*counts))
    yield "time", ", ".join(parts)
