"""A configuration that changes while it is in use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moonshim.config import Config, Limits, ProviderConfig, load_config
from moonshim.gateway.observe import logs
from moonshim.gateway.process.reload import Reloader, watch
from moonshim.gateway.process.settings import ServeSettings, refusal

GOOD = '[[providers]]\nname = "{name}"\napi_base_url = "http://127.0.0.1:1/v1"\nmodels = ["kimi-k2.5"]\n'


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)
    assert condition(), what


def watching(path: Path, act: Callable[[list[str]], Awaitable[None]]) -> list[str]:
    """What a watcher saw while something was done to a file."""
    seen: list[str] = []

    async def on_change() -> None:
        seen.append(path.read_text())

    async def main() -> None:
        task = asyncio.create_task(watch(path, on_change, seconds=0.01, settle=0.02))
        await asyncio.sleep(0)  # it has looked at the file
        try:
            await act(seen)
        finally:
            task.cancel()

    asyncio.run(main())
    return seen


class TestWatching:
    def test_a_file_written_anew_is_seen(self, tmp_path: Path) -> None:
        path = tmp_path / "moonshim.toml"
        path.write_text("one")

        async def act(seen: list[str]) -> None:
            path.write_text("two!")
            await until(lambda: seen == ["two!"], "the change")
            path.write_text("three")
            await until(lambda: seen == ["two!", "three"], "the next one")

        watching(path, act)

    def test_a_file_replaced_by_an_editor_is_seen_also_when_it_was_gone_for_a_moment(self, tmp_path: Path) -> None:
        path, new = tmp_path / "moonshim.toml", tmp_path / "new"
        path.write_text("one")

        async def act(seen: list[str]) -> None:
            path.unlink()
            await asyncio.sleep(0.05)
            new.write_text("two")
            new.rename(path)
            await until(lambda: seen == ["two"], "the change")

        watching(path, act)

    def test_a_link_that_is_turned_around_is_seen(self, tmp_path: Path) -> None:
        """How Kubernetes changes a ConfigMap that is mounted."""
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "moonshim.toml").write_text(name)
        path, data = tmp_path / "moonshim.toml", tmp_path / "..data"
        data.symlink_to("a")
        path.symlink_to("..data/moonshim.toml")

        async def act(seen: list[str]) -> None:
            (tmp_path / "tmp").symlink_to("b")
            (tmp_path / "tmp").replace(data)
            await until(lambda: seen == ["b"], "the change")

        watching(path, act)

    def test_a_file_written_in_pieces_is_read_when_it_is_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "moonshim.toml"
        path.write_text("")

        async def act(seen: list[str]) -> None:
            with path.open("w") as file:
                for _ in range(10):
                    file.write("piece ")
                    file.flush()
                    await asyncio.sleep(0.008)
            await until(lambda: seen and seen[-1] == "piece " * 10, "the whole")

        assert len(watching(path, act)) <= 3

    def test_a_file_that_was_taken_away_is_told_of_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[object] = []
        monkeypatch.setattr(logs, "event", lambda name, **fields: told.append((name, fields.get("file"))))
        path = tmp_path / "moonshim.toml"
        path.write_text("one")

        async def main() -> None:
            looks: list[str] = []

            async def on_change() -> None:
                looks.append(path.read_text())

            task = asyncio.create_task(watch(path, on_change, seconds=0.001, settle=0.001, missed=0.01))
            await asyncio.sleep(0)
            path.unlink()
            await until(lambda: told, "that it is gone")
            await asyncio.sleep(0.03)
            path.write_text("back again")
            await until(lambda: looks, "that it is back")
            task.cancel()

        asyncio.run(main())
        assert told == [("configuration_missing", str(path))]

    def test_what_does_not_change_is_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "moonshim.toml"
        path.write_text("one")

        async def act(seen: list[str]) -> None:
            await asyncio.sleep(0.1)

        assert watching(path, act) == []


class TestReloading:
    def test_a_good_file_is_used_and_a_broken_one_is_not(self, tmp_path: Path) -> None:
        path = tmp_path / "moonshim.toml"
        path.write_text(GOOD.format(name="first"))
        used: list[str] = []
        results: list[bool] = []

        async def main() -> None:
            reloader = Reloader(
                load_config(path, {}),
                lambda: load_config(path, {}),
                lambda config: used.append(config.providers[0].name),
                tell=results.append,
            )
            path.write_text(GOOD.format(name="second"))
            assert await reloader.reload("the file changed")
            path.write_text("this is [no toml")
            assert not await reloader.reload("the file changed")
            path.unlink()
            assert not await reloader.reload("SIGHUP")
            path.write_text(GOOD.format(name="third"))
            assert await reloader.reload("SIGHUP")

        asyncio.run(main())
        assert used == ["second", "third"]
        assert results == [True, False, False, True]

    @pytest.mark.parametrize(
        "ending", ["SystemExit('bye')", "KeyboardInterrupt", "asyncio.CancelledError", "GeneratorExit"]
    )
    def test_a_plug_in_that_ends_the_process_changes_nothing_and_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
    ) -> None:
        path = tmp_path / "moonshim.toml"
        path.write_text(GOOD.format(name="first"))
        (tmp_path / "leaving.py").write_text(f"import asyncio\nraise {ending}\n")
        used: list[Config] = []
        told: list[tuple[str, dict[str, object]]] = []
        monkeypatch.setattr(logs, "event", lambda name, **fields: told.append((name, fields)))

        async def main() -> None:
            reloader = Reloader(load_config(path, {}), lambda: load_config(path, {}), used.append)
            path.write_text(GOOD.format(name="second") + 'transformer = { use = ["./leaving.py:Leaving"] }\n')
            assert not await reloader.reload("SIGHUP")

        asyncio.run(main())
        assert used == []
        ((name, fields),) = told
        assert name == "configuration_rejected"
        assert "leaving.py:Leaving': " in str(fields["problem"])
        assert ending.partition("(")[0].rpartition(".")[2] in str(fields["problem"])

    def test_a_fault_in_putting_it_to_use_keeps_what_is_served(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[tuple[str, dict[str, object]]] = []
        monkeypatch.setattr(logs, "event", lambda name, **fields: told.append((name, fields)))

        def broken(config: Config) -> None:
            raise KeyError("nobody thought of it")

        assert not asyncio.run(Reloader(Config(), Config, broken).reload("SIGHUP"))
        ((name, fields),) = told
        assert (name, fields["problem"]) == ("configuration_rejected", "KeyError: 'nobody thought of it'")

    def test_a_gateway_that_others_reach_does_not_lose_its_keys(self) -> None:
        settings = ServeSettings(host="0.0.0.0", loopback=False)
        used: list[Config] = []
        reloader = Reloader(Config(), Config, used.append, refuse=lambda config: refusal(config, settings))
        assert asyncio.run(reloader.reload("the file changed")) is False
        assert used == []

    def test_what_needs_a_restart_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[object] = []
        monkeypatch.setattr(logs, "event", lambda name, **fields: told.append(fields.get("settings", name)))
        new = Config(store="sqlite:x", limits=Limits(header_bytes=1), heartbeat_seconds=5.0)
        files = [new, Config(host="0.0.0.0", port=1, workers=4, log_dir="logs", log_level="debug"), new, Config()]
        reloader = Reloader(Config(), lambda: files.pop(0), lambda config: None)

        async def main() -> None:
            while files:
                assert await reloader.reload("SIGHUP")

        asyncio.run(main())
        loaded = "configuration_loaded"
        own = ["host", "port", "workers", "log_dir", "log_level"]
        # What runs is compared, not the file before: who takes a change back needs no restart.
        assert told == [loaded, ["store", "limits"], loaded, own, loaded, ["store", "limits"], loaded]

    def test_two_at_once_come_one_after_the_other(self) -> None:
        running: list[int] = []
        most: list[int] = []

        def load() -> Config:
            running.append(1)
            most.append(len(running))
            running.pop()
            return Config(providers=(ProviderConfig(name="a", api_base_url="http://a"),))

        async def main() -> None:
            reloader = Reloader(Config(), load, lambda config: None)
            await asyncio.gather(*(reloader.reload("SIGHUP") for _ in range(5)))

        asyncio.run(main())
        assert most == [1] * 5
