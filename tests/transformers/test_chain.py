"""The links of a chain become options and transformers, and every link that is wrong is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from moonshim.engine.stages import name_of
from moonshim.engine.values.conversation import Request
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidOption
from moonshim.transformers import Chain, Kimi, Log, load_chain

OTHERS: Final = "tests.transformers.plugged:Saying"


class Use(Struct, frozen=True):
    name: str
    options: dict[str, Any] = {}


def test_without_a_chain_a_kimi_gets_everything_mended() -> None:
    assert load_chain(None) == load_chain(()) == Chain(None, (), ())


def test_kimi_without_options_is_the_table_of_its_first_description() -> None:
    chain = load_chain([Use("Kimi")])
    assert chain.options == KimiOptions()
    assert chain.transformers == ()
    assert Kimi().options == KimiOptions()


def test_kimi_takes_its_options_by_both_names() -> None:
    chain = load_chain([Use("Kimi", {"manualToolParsing": True, "id_prefix": "fn"})])
    assert chain.options == KimiOptions(manual_tool_parsing=True, id_prefix="fn")


def test_a_second_kimi_changes_only_what_it_names() -> None:
    chain = load_chain([Use("Kimi", {"idPrefix": "fn"}), Use(OTHERS), Use("Kimi", {"manualToolParsing": True})])
    assert chain.options == KimiOptions(manual_tool_parsing=True, id_prefix="fn")
    assert load_chain([Use("Kimi", {"idPrefix": "fn"}), Use("Kimi")]).options == KimiOptions(id_prefix="fn")


def test_others_without_a_kimi_leave_its_options_open() -> None:
    chain = load_chain([Use("Log"), Use(OTHERS)])
    assert chain.options is None
    assert [name_of(one) for one in chain.transformers] == ["Log", OTHERS]


def test_others_keep_their_order_around_kimi() -> None:
    chain = load_chain([Use(OTHERS), Use("Kimi"), Use("Log")])
    assert [name_of(one) for one in chain.transformers] == [OTHERS, "Log"]


def test_whoever_leaves_markers_alone_is_told_so() -> None:
    (warning,) = load_chain([Use("Kimi")]).warnings
    assert "manualToolParsing" in warning
    assert load_chain([Use("Kimi", {"manualToolParsing": True})]).warnings == ()
    assert load_chain([Use("Log")]).warnings == ()


BAD: Final = {
    "a word for another": (Use("Kimmi"), "did you mean 'Kimi'?"),
    "another case": (Use("kimi"), "did you mean 'Kimi'?"),
    "a name that nothing is like": (Use("Quux"), "available: Kimi, Log"),
    "an option of Kimi": (Use("Kimi", {"manualToolParsng": True}), "did you mean 'manualToolParsing'?"),
    "a value of Kimi": (Use("Kimi", {"manualToolParsing": "yes"}), "manualToolParsing must be a bool"),
    "an option of Log": (Use("Log", {"lvl": "info"}), "unknown option 'lvl' of Log"),
    "a level of Log": (Use("Log", {"level": "loud"}), "level must be one of debug, info, warning, error"),
    "a text of Log": (Use("Log", {"text": "no"}), "text must be a boolean"),
    "a module that is not there": (Use("no.such.module:X"), "ModuleNotFoundError"),
    "a file that is not there": (Use("./gone.py:X"), "no such file"),
    "a class that is not there": (Use("tests.transformers.plugged:Sayng"), "did you mean 'Saying'?"),
    "no class at all": (
        Use("moonshim.engine.values.options:DEFAULT_BUFFER_LIMIT"),
        "must be a class or function, got int",
    ),
    "an option that is not taken": (Use(OTHERS, {"loud": 1}), "does not accept these options"),
    "what is no transformer": (Use("builtins:list"), "must have a method prepare or stages"),
    "a constructor that raises": (
        Use("json:loads", {"s": "{"}),
        "cannot create transformer 'json:loads': JSONDecodeError",
    ),
}


@pytest.mark.parametrize(("use", "expected"), BAD.values(), ids=BAD.keys())
def test_a_link_that_is_wrong_is_named(use: Use, expected: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        load_chain([Use("Log"), use])
    assert expected in str(raised.value)
    assert raised.value.field


PLUGIN: Final = """
from dataclasses import dataclass

@dataclass
class Only:
    times: int = {times}

    def prepare(self, request):
        return request
"""


def test_a_plug_in_in_a_file_is_found_beside_the_configuration_and_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for times in (1, 2):
        file.write_text(PLUGIN.format(times=times), "utf-8")
        (plugin,) = load_chain([Use("./mine.py:Only")], folder=tmp_path).transformers
        assert plugin.inner.times == times  # type: ignore[attr-defined]
        assert name_of(plugin) == "mine.py:Only"
        # What it leaves out does nothing.
        assert plugin.stages(None) == []
    (absolute,) = load_chain([Use(f"{file}:Only", {"times": 7})]).transformers
    assert absolute.inner.times == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["def (", "1 / 0", "import no_such_module"])
def test_a_file_that_cannot_be_loaded_leaves_nothing_behind(text: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(text, "utf-8")
    before = set(sys.modules)
    with pytest.raises(InvalidOption, match="cannot load transformer"):
        load_chain([Use("broken.py:X")], folder=tmp_path)
    assert set(sys.modules) == before


def test_a_file_that_raises_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\nx / 0\n", "utf-8")
    with pytest.raises(InvalidOption) as caught:
        load_chain([Use("broken.py:X")], folder=tmp_path)
    assert str(caught.value).endswith(f"ZeroDivisionError: division by zero ({tmp_path / 'broken.py'}:2)")


def test_a_broken_file_keeps_the_module_that_runs(tmp_path: Path) -> None:
    file = tmp_path / "kept.py"
    file.write_text(PLUGIN.format(times=1), "utf-8")
    (plugin,) = load_chain([Use("kept.py:Only")], folder=tmp_path).transformers
    module = sys.modules[type(plugin.inner).__module__]  # type: ignore[attr-defined]
    file.write_text("def (", "utf-8")
    with pytest.raises(InvalidOption):
        load_chain([Use("kept.py:Only")], folder=tmp_path)
    assert sys.modules[module.__name__] is module


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Offers entry points, as an installed package does."""

    def install(lines: str) -> None:
        about = tmp_path / "plugged-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n", "utf-8")
        (about / "entry_points.txt").write_text(f"[moonshim.transformers]\n{lines}\n", "utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


def test_a_package_offers_a_transformer_by_name(installed: Callable[[str], None]) -> None:
    installed(f"Say = {OTHERS}\nBroken = no_such_module:X")
    (plugin,) = load_chain([Use("Say", {"word": "hm"})]).transformers
    request = plugin.prepare(Request(model="k3"))
    assert [message.role for message in request.messages] == ["system"]
    assert name_of(plugin) == "Say"
    with pytest.raises(InvalidOption, match="did you mean 'Say'"):
        load_chain([Use("Sey")])
    with pytest.raises(InvalidOption, match="cannot load transformer 'Broken'"):
        load_chain([Use("Broken")])


def test_a_log_tells_whom_it_is_given() -> None:
    told: list[str] = []
    chain = load_chain([Use("Log", {"level": "debug"})], log=lambda level, name, fields: told.append(f"{level} {name}"))
    (log,) = chain.transformers
    assert isinstance(log, Log)
    log.prepare(Request(model="k3"))
    assert told == ["debug log_request"]
