"""The collected tests -> two tiers: what `make test` runs, and what only `make test-all` runs.

A test is in the quick tier unless the table below says otherwise; all others are marked `slow`. Hypothesis tries fewer
examples in the quick tier (`profiles.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
WITHOUT_SLOW: Final = "not slow"
"""The marker expression of the quick tier."""

KEPT: Final[dict[str, int]] = {
    # Full products of faults, hosts and clients.
    "tests/agent/test_eight_rounds.py": 6,
    "tests/agent/test_provider_faults.py": 8,
    "tests/engine/hosts/test_every_host_accepts.py": 40,
    "tests/gateway/test_faults_host.py": 3,
    "tests/gateway/test_host_faults_mended.py": 8,
    "tests/gateway/test_marathon.py": 1,
    "tests/gateway/test_sdk_loops.py": 4,
    "tests/gateway/test_switching.py": 6,
    "tests/matrix/test_matrix.py": 16,
    # Laws over every vector, where one law or a few vectors show what is wrong.
    "tests/golden/test_golden_bytes.py": 100,
    "tests/engine/response/test_openai_client.py::test_the_package_reads_every_mended_vector": 60,
    "tests/engine/response/test_pipeline.py::test_the_answer_says_the_same_in_every_dialect": 60,
    "tests/engine/response/test_vector_repairs.py::test_every_client_hears_of_what_was_repaired": 40,
    "tests/engine/response/test_vectors.py::test_a_whole_response_gives_the_same": 60,
    "tests/engine/response/test_vectors.py::test_any_split_of_the_bytes_gives_the_same": 160,
    "tests/engine/response/test_vectors.py::test_assembled_gives_the_same_message": 60,
    "tests/engine/response/test_vectors.py::test_mending_the_mended_stream_changes_nothing": 60,
    "tests/engine/response/test_vectors.py::test_any_rechunking_of_the_text_gives_the_same": 30,
    "tests/engine/response/test_vectors.py::test_nothing_decided_is_kept_back": 30,
    "tests/engine/response/test_vectors.py::test_parsed_chunks_give_the_same": 60,
    "tests/engine/response/test_vectors.py::test_ndjson_says_the_same_as_sse": 60,
    # Generated streams, and work that is counted at several sizes.
    "tests/engine/grammar/test_raw_text.py::test_soup_loses_no_letter_at_any_chunking": 1,
    "tests/engine/grammar/test_raw_text.py::test_work_is_linear": 12,
    "tests/engine/ids/test_mapper.py::test_work_is_linear_in_the_history": 8,
    "tests/engine/request/test_prefix_stability.py::test_nasty_conversations_only_grow": 9,
    "tests/engine/repair/test_schema.py::test_strings_within_strings_are_read_to_a_limit_and_never_break": 0,
    "tests/engine/response/test_native_arguments.py": 60,
    "tests/engine/response/test_stream_fail.py::test_a_host_may_die_at_every_byte": 1,
    "tests/laws/test_chunking.py": 6,
    "tests/laws/test_fuzz.py": 8,
    "tests/laws/test_linear.py": 8,
    "tests/laws/test_linear_work.py": 4,
    "tests/laws/test_linear_requests.py": 6,
    "tests/laws/test_marker_families.py": 16,
    "tests/laws/test_round_trips.py": 4,
    "tests/engine/test_unknown_host.py": 8,
    "tests/simulator/faults/test_calls.py::test_a_long_call_goes_wrong_as_a_short_one_does_and_nobody_waits_for_it": 1,
    # Builds the documentation site and opens it in a browser.
    "tests/docs/test_site.py": 0,
    # Seconds of waiting for a deadline each.
    "tests/agent/test_loop_stopping.py::test_a_tool_that_swallows_every_cancellation_does_not_keep_run_from_ending": 0,
    "tests/http_server/test_protocol.py::test_what_never_ends_is_not_kept": 4,
    "tests/testing/test_replies.py::test_an_agent_goes_through_the_rounds": 2,
    # Processes, terminals, frameworks: two smoke tests each.
    "tests/agent/test_agent_page.py": 2,
    "tests/agent/test_history_crash.py": 2,
    "tests/agent/test_loop_stopping.py::test_at_every_single_step": 1,
    "tests/agent/test_loop_under_fault.py": 2,
    "tests/chat/test_oneshot.py": 2,
    "tests/chat/test_page.py": 0,
    "tests/chat/test_poor_terminals.py": 0,
    "tests/chat/test_resume.py": 0,
    "tests/chat/test_secret_environment.py": 1,
    "tests/chat/test_terminal.py": 2,
    "tests/chat/test_terminal_commands.py": 0,
    "tests/chat/test_tool_format_kept.py": 0,
    "tests/chat/test_type_ahead.py": 1,
    "tests/cli": 8,
    "tests/cli/mend/test_command.py": 4,
    "tests/cli/test_doctor.py": 2,
    "tests/cli/test_hangup.py": 0,
    "tests/cli/test_lost_keys.py": 2,
    "tests/config/test_command.py": 2,
    "tests/docs/test_readme.py": 2,
    "tests/docs/test_snippets.py": 1,
    "tests/gateway/test_admission.py": 2,
    "tests/gateway/test_answer_size.py": 6,
    "tests/gateway/test_metrics.py::test_two_workers_answer_for_both_also_when_one_has_died": 0,
    "tests/gateway/test_redis_cluster.py": 0,
    "tests/gateway/test_shutdown.py": 1,
    "tests/gateway/test_workers.py": 1,
    "tests/http_server/test_server.py": 2,
    "tests/integrations/test_conversations.py": 2,
    "tests/integrations/test_examples.py": 2,
    "tests/launch/test_real_client.py": 0,
    "tests/packaging/test_demo.py": 1,
    "tests/packaging/test_packaging.py": 2,
    "tests/simulator/test_server.py": 4,
    "tests/store/test_redis_cluster.py": 0,
    "tests/usage/test_killed_worker.py": 1,
}
"""How many tests of a folder, a file or one function stay in the quick tier, spread evenly over them.

The longest matching entry counts.
"""


def mark_slow(items: Iterable[pytest.Item]) -> None:
    """Mark what is not in the quick tier."""
    grouped = sorted(((_entry(item.nodeid), item) for item in items), key=lambda pair: pair[0] or "")
    for entry, group in groupby(grouped, key=lambda pair: pair[0]):
        if entry is not None:
            found = [item for _, item in group]
            kept = set(map(id, spread(found, KEPT[entry])))
            for item in found:
                if id(item) not in kept:
                    item.add_marker(pytest.mark.slow)


def is_wholly_slow(path: Path) -> bool:
    """Whether nothing in this file is in the quick tier, so that it need not even be imported."""
    return path.is_relative_to(ROOT) and KEPT.get(path.relative_to(ROOT).as_posix()) == 0


def spread(items: Sequence[pytest.Item], count: int) -> list[pytest.Item]:
    """This many of them, evenly spread."""
    return [items[place * len(items) // count] for place in range(min(count, len(items)))]


def _entry(nodeid: str) -> str | None:
    """The longest entry of the table that the test belongs to."""
    own = nodeid.partition("[")[0]
    names = [own]
    while own:
        own = own.rpartition("::" if "::" in own else "/")[0]
        names.append(own)
    return next((name for name in names if name in KEPT), None)
