"""`moonshim keys`: a key is shown once, only its digest is kept, and the rest of the file stays as it was."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from moonshim.cli import keys
from moonshim.config import Budget, GatewayKey, load_config
from moonshim.gateway.inbound.auth import KeyRing, digest_of

TOML = """\
# Our gateway. Ask before you change it.
[[providers]]
name = "vllm"            # the box under the desk
api_base_url = "http://localhost:8000/v1"
models = ["kimi-k2.5"]

# How much it takes.
[limits]
body_bytes = 1000
"""
PROVIDER = {"name": "vllm", "api_base_url": "http://localhost:8000/v1", "models": ["kimi-k2.5", "größer"]}


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> None:
        try:
            self.code = keys.main([str(one) for one in arguments])
        except SystemExit as stopped:  # how argparse ends; `moonshim` itself turns it into an exit code
            self.code = int(stopped.code or 0)
        self.out, self.told = capsys.readouterr()


Runner = Callable[..., Run]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path / "home")})

    def runner(*arguments: str | Path) -> Run:
        for name in ("moonshim.toml", "moonshim.json"):
            if (tmp_path / name).exists():
                os.environ.setdefault("MOONSHIM_CONFIG", name)  # a file that is named needs no trust
        return Run(capsys, *arguments)

    return runner


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "moonshim.toml"
    path.write_text(TOML)
    return path


def keys_in(path: Path) -> tuple[GatewayKey, ...]:
    return load_config(path, {}).keys


def test_a_new_key_opens_the_gateway_and_only_its_digest_is_in_the_file(run: Runner, file: Path) -> None:
    done = run("new", "alice")
    key = done.out.strip()
    assert (done.code, done.out) == (0, f"{key}\n")
    assert key.startswith("msk_")
    assert len(key) == len("msk_") + 43  # 256 bits
    (kept,) = keys_in(file)
    assert (kept.name, kept.digest) == ("alice", digest_of(key))
    assert KeyRing([kept]).identify({"authorization": f"Bearer {key}"}) == kept
    assert key not in file.read_text()
    assert key not in done.told


def test_every_limit_is_kept(run: Runner, file: Path) -> None:
    limits = ["--rpm", "60", "--tpm", "200000", "--streams", "4", "--expires", "2999-12-31"]
    assert run("new", "ci", "--models", "kimi-*", "gpt-5", *limits, "--config", file).code == 0
    (kept,) = keys_in(file)
    assert kept.models == ("kimi-*", "gpt-5")
    assert (kept.requests_per_minute, kept.tokens_per_minute, kept.concurrent_streams) == (60, 200_000, 4)
    assert kept.expires is not None
    assert kept.expires > datetime(2999, 12, 31, 23, 59, tzinfo=UTC)  # the day still counts


def test_a_period_is_counted_from_now(run: Runner, file: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    assert run("new", "ci", "--expires", "90d").code == 0
    after = datetime.now(UTC)
    (kept,) = keys_in(file)
    assert kept.expires is not None
    assert before <= kept.expires - timedelta(days=90) <= after


def test_comments_and_order_of_a_toml_file_stay_when_keys_come_and_go(run: Runner, file: Path) -> None:
    for name in ("a", "b", "c"):
        assert run("new", name).code == 0
    required = "[gateway]\nrequire_keys = true\n\n"
    assert file.read_text().startswith(required + TOML)
    assert [key.name for key in keys_in(file)] == ["a", "b", "c"]
    assert run("revoke", "b").code == 0
    assert [key.name for key in keys_in(file)] == ["a", "c"]
    assert run("revoke", "c").code == 0
    assert run("revoke", "a").code == 0
    assert file.read_text() == "keys = []\n\n" + required + TOML, "that there is none is said, not lost"
    assert run("new", "d").code == 0
    assert file.read_text().startswith(required + TOML)
    assert [key.name for key in keys_in(file)] == ["d"]


WITH_KEYS = """\
[[keys]]  # the first
name = "a"
digest = "sha256:{a}"
models = [
  "kimi-*",
]
# of a

# Whoever builds.
[[ "keys" ]]
digest = "sha256:{b}"
name = "b"

# --- hosts ---
[[providers]]
name = "vllm"
api_base_url = "http://localhost:8000/v1"
transformer = {{ use = [["./mine.py:Mine", {{ note = '''
[[keys]]
name = "no key"
''' }}]] }}
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_revoking_takes_one_block_and_no_comment_of_others(run: Runner, file: Path, name: str, newline: str) -> None:
    text = WITH_KEYS.format(a="a" * 64, b="b" * 64).replace("\n", newline)
    file.write_bytes(text.encode())
    assert run("revoke", name).code == 0
    left = file.read_bytes().decode()
    assert f"{name * 64}" not in left
    assert [key["name"] for key in tomllib.loads(left)["keys"]] == [{"a": "b", "b": "a"}[name]]
    assert left.count("\n") == left.count(newline)
    for comment in ("# of a", "# Whoever builds.", "# --- hosts ---", "[[keys]]" + newline + 'name = "no key"'):
        assert comment in left


def test_a_file_that_cannot_be_edited_safely_is_left_alone(run: Runner, file: Path) -> None:
    text = TOML.replace("# Our", f'keys = [{{ name = "a", digest = "sha256:{"a" * 64}" }}]\n# Our')
    file.write_text(text)
    for arguments in (["new", "b"], ["revoke", "a"]):
        done = run(*arguments)
        assert (done.code, done.out) == (1, "")  # a key that is not stored is not shown
        assert "by hand" in done.told
    assert file.read_text() == text


JSON_SHAPES = {
    "an object": {"providers": [PROVIDER], "keys": []},
    "an object without keys": {"providers": [PROVIDER]},
    "a list of providers": [PROVIDER],
    "one provider": PROVIDER,
}


@pytest.mark.parametrize("shape", JSON_SHAPES)
@pytest.mark.parametrize("indent", [2, 4, "\t", None])
def test_a_json_file_keeps_its_indentation(run: Runner, tmp_path: Path, shape: str, indent: int | str | None) -> None:
    path = tmp_path / "moonshim.json"
    path.write_text(json.dumps(JSON_SHAPES[shape], indent=indent, ensure_ascii=False) + "\n")
    before = load_config(path, {})
    key = run("new", "ci", "--expires", "2999-01-01").out.strip()
    config = load_config(path, {})
    assert config.providers == before.providers
    assert [one.digest for one in config.keys] == [digest_of(key)]
    assert path.read_text() == json.dumps(json.loads(path.read_text()), indent=indent, ensure_ascii=False) + "\n"
    assert "größer" in path.read_text()
    assert run("revoke", "ci").code == 0
    assert load_config(path, {}).keys == ()


def test_comments_in_json_are_not_thrown_away(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "moonshim.json"
    path.write_text('// mine\n{"providers": []}')
    done = run("new", "ci")
    assert (done.code, done.out) == (1, "")
    assert "cannot edit a file with comments" in done.told
    assert "keys new NAME --print" in done.told
    pasted = run("new", "alice", "--print")
    assert (pasted.code, '"name": "alice"' in pasted.out) == (0, True)
    assert path.read_text().startswith("// mine")


def test_print_changes_no_file(run: Runner, file: Path) -> None:
    done = run("new", "ci", "--rpm", "5", "--print")
    key, _, block = done.out.partition("\n\n")
    assert file.read_text() == TOML
    file.write_text(TOML + block)
    (kept,) = keys_in(file)
    assert (kept.digest, kept.requests_per_minute) == (digest_of(key), 5)


def test_print_needs_no_file(run: Runner) -> None:
    done = run("new", "ci", "--print")
    assert done.code == 0
    assert "[[keys]]" in done.out


def test_the_list_shows_limits_and_never_a_whole_digest(run: Runner, file: Path) -> None:
    run("new", "alice", "--models", "kimi-*", "--rpm", "1000", "--expires", "2999-01-01")
    digest = keys_in(file)[0].digest
    with file.open("a") as more:
        more.write(f'\n[[keys]]\nname = "old"\ndigest = "sha256:{"0" * 64}"\nexpires = 2020-01-01\n')
    done = run("list")
    assert done.code == 0
    assert digest.removeprefix("sha256:")[9:] not in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0][:2] == ["NAME", "MODELS"]
    assert rows[1][:3] == ["alice", "kimi-*", "2999-01-01"]
    assert "1,000" in rows[1]
    assert "expired 2020-01-01" in done.out


def test_a_key_can_get_the_right_to_see_all_usage(run: Runner, file: Path) -> None:
    assert run("new", "admin", "--right", "usage", "--right", "usage").code == 0
    assert run("new", "alice").code == 0
    assert [(key.name, key.rights) for key in keys_in(file)] == [("admin", ("usage",)), ("alice", ())]
    header, admin, alice = (line.split() for line in run("list").out.splitlines())
    assert (header[-2], admin[-2], alice[-2]) == ("RIGHTS", "usage", "-")
    refused = run("new", "bob", "--right", "usgae")
    assert refused.code == 2
    assert "(did you mean 'usage'?)" in refused.told


def test_an_unknown_right_is_an_error_of_the_file(run: Runner, file: Path) -> None:
    digest = digest_of("msk_x")
    file.write_text(f'{TOML}\n[[keys]]\nname = "a"\ndigest = "{digest}"\nrights = ["usage", "usgae"]\n')
    done = run("list")
    assert done.code == 2
    assert "keys[0].rights[1]: expected one of usage, inspect (did you mean 'usage'?)" in done.told


def test_a_file_that_others_may_not_read_stays_so(run: Runner, file: Path) -> None:
    file.chmod(0o600)
    run("new", "alice")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]  # nothing is left beside it


def test_a_link_stays_a_link(run: Runner, file: Path, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    real = file.rename(tmp_path / "else" / "real.toml")
    file.symlink_to(real)
    run("new", "alice")
    assert file.is_symlink()
    assert [key.name for key in keys_in(real)] == ["alice"]


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "a name twice": (["new", "Alice"], 1, "key 'Alice' already exists"),
    "an invalid name": (["new", "two words"], 2, "expected up to 64 letters"),
    "a name that moves the cursor": (["new", "a\x1b[2J"], 2, "expected up to 64 letters"),
    "no limit at all": (["new", "b", "--rpm", "0"], 2, "expected an integer from 1 to 999999999999, got '0'"),
    "an invalid expiry": (["new", "b", "--expires", "soon"], 2, "expected a period"),
    "an expiry that is over": (["new", "b", "--expires", "2020-01-01"], 2, "2020-01-01 is in the past"),
    "an expiry beyond all calendars": (["new", "b", "--expires", "99999y"], 2, "expected a period"),
    "an unknown key": (["revoke", "alise"], 1, "(did you mean 'alice'?)"),
    "no such file": (["revoke", "alice", "--config", "nowhere.toml"], 2, "no such file"),
    "a folder that cannot be": (["new", "b", "--config", "moonshim.toml/x.toml"], 1, "cannot create this file"),
    "no action": ([], 2, "choose an action: new, list or revoke"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_told_in_a_line_and_changes_nothing(run: Runner, file: Path, name: str) -> None:
    run("new", "alice")
    before = file.read_text()
    arguments, code, told = REFUSED[name]
    done = run(*arguments)
    assert (done.code, done.out) == (code, "")
    assert told in done.told
    assert "\x1b" not in done.told
    assert file.read_text() == before


@pytest.mark.parametrize("arguments", [["list"], ["revoke", "a"]], ids=lambda one: one[0])
def test_without_a_configuration_file_it_says_so(run: Runner, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (1, "")
    assert "no configuration file found" in done.told


def test_the_first_and_the_last_key_say_what_they_change(run: Runner, file: Path) -> None:
    assert "every request now needs a key" in run("new", "alice").told
    assert "every request now needs a key" not in run("new", "bob").told
    assert "last one" not in run("revoke", "alice").told
    assert "every request is refused" in run("revoke", "bob").told
    assert "has no keys" in run("list").told


CREATED: dict[str, tuple[list[str], dict[str, str], str]] = {
    "in the user's folder": ([], {}, "home/.config/moonshim/moonshim.toml"),
    "as --config says": (["--config", "here.toml"], {}, "here.toml"),
    "as --config says, in JSON": (["--config", "here.json"], {}, "here.json"),
    "as the environment says": ([], {"MOONSHIM_CONFIG": "there/mine.toml"}, "there/mine.toml"),
}


@pytest.mark.parametrize("where", CREATED)
def test_the_first_key_creates_the_file_that_serve_reads(where: str, run: Runner, tmp_path: Path) -> None:
    arguments, environment, expected = CREATED[where]
    os.environ.update(environment)  # the fixture's own
    done = run("new", "alice", *arguments)
    path = tmp_path / expected
    assert done.code == 0, done.told
    assert str(path) in done.told
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = load_config(path, {"MOONSHOT_API_KEY": "sk-1234567890"})
    assert [key.name for key in config.keys] == ["alice"]
    assert [provider.name for provider in config.providers] == ["moonshot"], "hosts are still from the environment"
    assert "alice" in run("list", *arguments).out
    assert run("new", "bob", *arguments).code == 0
    assert run("revoke", "alice", *arguments).code == 0
    assert [key.name for key in load_config(path, {"MOONSHOT_API_KEY": "sk-1234567890"}).keys] == ["bob"]


def test_all_actions_know_the_key_of_claude_code_router(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    router = {"APIKEY": "ccr-secret-key", "Providers": [PROVIDER], "Router": {"default": "vllm,kimi-k2.5"}}
    path.write_text(json.dumps(router, indent=2))
    listed = run("list", "--config", path)
    assert "APIKEY" in listed.out
    assert "ccr-secret-key" not in listed.out + listed.told
    assert "key 'apikey' already exists" in run("new", "apikey", "--config", path).told
    added = run("new", "alice", "--config", path)
    assert added.code == 0
    assert "it is the first one" not in added.told
    assert [key.name for key in keys_in(path)] == ["APIKEY", "alice"]
    revoked = run("revoke", "APIKEY", "--config", path)
    assert (revoked.code, "it was the last one" in revoked.told) == (0, False)
    assert [key.name for key in keys_in(path)] == ["alice"]
    assert "APIKEY" not in run("list", "--config", path).out
    assert json.loads(path.read_text())["Router"] == router["Router"]
    assert "no key 'APIKEY' in" in run("revoke", "APIKEY", "--config", path).told


@pytest.mark.parametrize("name", ["moonshim.toml", "moonshim.json"])
def test_a_key_can_have_budgets(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / name
    file.write_text(TOML if file.suffix == ".toml" else json.dumps({"providers": [PROVIDER]}))
    options = ("--budget-day", "5.00", "--budget-month", "60")
    assert Run(capsys, "new", "ci", *options, "--config", file).code == 0
    (key,) = load_config(file, {}).keys
    assert key.budgets == (Budget(period="day", limit=Decimal(5)), Budget(period="month", limit=Decimal(60)))
    assert "$5.00/day, $60/month" in Run(capsys, "list", "--config", file).out
    if file.suffix == ".toml":
        assert 'budgets = [{ period = "day", limit = "5.00" }, { period = "month", limit = "60" }]' in file.read_text()


@pytest.mark.parametrize("amount", ["-1", "five", "1e3", "0.0000001", "99999999"])
def test_an_invalid_budget_is_an_error(amount: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "new", "ci", f"--budget-day={amount}", "--config", tmp_path / "moonshim.toml")
    assert run.code == 2
    assert "--budget-day: expected an amount such as 5.00" in run.told
