"""What is under deploy/ fits the program: commands, flags, ports, probes, variables, and how long an end may take.

No container engine runs here, so these files are read: each against the real command line, the real routes and the
real reader of configurations.
"""

from __future__ import annotations

import json
import re
import shlex
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from moonshim.cli.serve import parser
from moonshim.config import LOOKED_FOR, Config, Limits, parse_config
from moonshim.config.environment import with_overrides
from moonshim.config.files.find import VARIABLE
from moonshim.gateway.process.settings import PORT, ServeSettings, refusal
from moonshim.gateway.routes import routes_of
from moonshim.gateway.state import GatewayState
from moonshim.http_server.hang import BEAT_SECONDS, HUNG_EXIT_CODE
from moonshim.http_server.sockets import is_loopback
from moonshim.store import store_kind
from moonshim.usage.ledger import default_file

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES: Final = DEPLOY / "kubernetes"
OURS: Final = {VARIABLE, "MOONSHIM_STORE", "MOONSHIM_SECRET", "MOONSHIM_MODEL", "MOONSHIM_KEY_DIGEST"}
"""What a variable of ours may be called: what the program reads, and what the configurations here name."""
VALUES: Final = {
    "MOONSHOT_API_KEY": "sk-0123456789abcdef",
    "MOONSHIM_SECRET": "0123456789abcdef0123456789abcdef",
    "MOONSHIM_KEY_DIGEST": "sha256:" + "0123456789abcdef" * 4,
}
yaml: Any = import_module("yaml")


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def kind(name: str, named: str = "moonshim") -> dict[str, Any]:
    """The one manifest of a kind."""
    found = [one for path in KUBERNETES.glob("*.yaml") for one in documents(path) if one["kind"] == name]
    (only,) = [one for one in found if one["metadata"]["name"] == named]
    return only


COMPOSE: Final = documents(DEPLOY / "compose.yaml")[0]
CONTAINER: Final = (DEPLOY / "Containerfile").read_text()
UNIT: Final = dict(
    line.split("=", 1) for line in (DEPLOY / "moonshim.service").read_text().splitlines() if re.match(r"\w+=", line)
)
POD: Final = kind("Deployment")["spec"]["template"]
GATEWAY: Final = POD["spec"]["containers"][0]
PATHS: Final = {getattr(route, "path", "") for route in routes_of(cast(GatewayState, SimpleNamespace(inspector=None)))}

COMMANDS: Final = {
    "Containerfile": json.loads(re.findall(r"^CMD (\[.*\])", CONTAINER, re.MULTILINE)[-1]),
    "compose.yaml": COMPOSE["services"]["gateway"]["command"],
    "kubernetes": GATEWAY["args"],
    "systemd": shlex.split(UNIT["ExecStart"])[1:],
}
ENVIRONMENTS: Final[dict[str, dict[str, str]]] = {
    "compose.yaml": COMPOSE["services"]["gateway"]["environment"],
    "kubernetes": {one["name"]: one.get("value", "") for one in GATEWAY["env"]},
    "systemd": dict(one.split("=", 1) for one in shlex.split(UNIT["Environment"])),
}
CONFIGURATIONS: Final = {
    "compose.yaml": (DEPLOY / "moonshim.toml").read_text(),
    "systemd": (DEPLOY / "moonshim.toml").read_text(),
    "kubernetes": kind("ConfigMap")["data"]["moonshim.toml"],
}


def understood(place: str) -> Namespace:
    command, *arguments = COMMANDS[place]
    assert command == "serve"
    return parser().parse_args(arguments)


def configured(place: str) -> Config:
    config = parse_config(CONFIGURATIONS[place], suffix=".toml", environ=VALUES, source=place)
    return with_overrides(config, VALUES | ENVIRONMENTS[place])


class TestCommands:
    @pytest.mark.parametrize("place", COMMANDS)
    def test_the_command_line_understands_them(self, place: str) -> None:
        assert understood(place).port == PORT

    @pytest.mark.parametrize("place", CONFIGURATIONS)
    def test_what_they_ask_for_would_be_served(self, place: str) -> None:
        given, config = understood(place), configured(place)
        loopback = is_loopback(given.host)
        settings = ServeSettings(host=given.host, workers=given.workers or 1, loopback=loopback)
        assert refusal(config, settings) is None
        assert config.providers
        assert config.keys
        assert config.secret is not None or place == "systemd"

    @pytest.mark.parametrize("place", ["Containerfile", "compose.yaml", "kubernetes"])
    def test_in_a_container_it_is_reached_from_outside(self, place: str) -> None:
        assert understood(place).host == "0.0.0.0"

    def test_the_program_that_is_started_is_ours(self) -> None:
        assert re.search(r'^ENTRYPOINT \["moonshim"\]$', CONTAINER, re.MULTILINE)
        assert shlex.split(UNIT["ExecStart"])[0].endswith("/moonshim")
        assert "command" not in GATEWAY, "it would take the place of the entry point"


class TestPortsAndProbes:
    def test_all_ports_are_the_one_that_is_served(self) -> None:
        assert re.findall(r"^EXPOSE (\d+)$", CONTAINER, re.MULTILINE) == [str(PORT)]
        assert COMPOSE["services"]["gateway"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
        assert [one["containerPort"] for one in GATEWAY["ports"]] == [PORT]
        assert POD["metadata"]["annotations"]["prometheus.io/port"] == str(PORT)
        (scrape,) = documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]
        assert scrape["static_configs"] == [{"targets": [f"gateway:{PORT}"]}]

    def test_probes_ask_for_paths_that_exist(self) -> None:
        probes = {name: GATEWAY[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
        assert {name: probe["path"] for name, probe in probes.items()} == {
            "startup": "/health",
            "liveness": "/health",
            "readiness": "/ready",
        }
        assert {probe["path"] for probe in probes.values()} <= PATHS
        assert {probe["port"] for probe in probes.values()} == {GATEWAY["ports"][0]["name"]}
        (asked,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", CONTAINER)
        assert asked == (str(PORT), "/health")

    def test_metrics_are_where_prometheus_looks(self) -> None:
        (scrape,) = documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]
        assert {scrape["metrics_path"], POD["metadata"]["annotations"]["prometheus.io/path"]} == {"/metrics"}
        assert "/metrics" in PATHS


class TestHowItEnds:
    def test_nobody_kills_before_running_answers_are_done(self) -> None:
        graceful = {place: understood(place).graceful_seconds for place in COMMANDS}
        assert int(COMPOSE["services"]["gateway"]["stop_grace_period"].removesuffix("s")) > graceful["compose.yaml"]
        assert int(UNIT["TimeoutStopSec"]) > graceful["systemd"]
        (sleep, seconds) = GATEWAY["lifecycle"]["preStop"]["exec"]["command"]
        assert sleep == "sleep"
        assert POD["spec"]["terminationGracePeriodSeconds"] > graceful["kubernetes"] + int(seconds)

    def test_signals_are_those_that_the_program_knows(self) -> None:
        assert re.search(r"^STOPSIGNAL SIGTERM$", CONTAINER, re.MULTILINE)
        assert UNIT["ExecReload"] == "/bin/kill -HUP $MAINPID"
        assert UNIT["KillMode"] == "mixed", "workers are told by their supervisor, once"


class TestWhatRestartsIt:
    """A process that hangs exits by itself, with a code other than zero; one that waits for ever is noticed."""

    def test_a_process_that_exits_is_started_again(self) -> None:
        assert UNIT["Restart"] == "on-failure"
        assert COMPOSE["services"]["gateway"]["restart"] == "unless-stopped"
        assert POD["spec"].get("restartPolicy", "Always") == "Always"
        assert HUNG_EXIT_CODE > 0

    def test_a_process_that_does_not_respond_is_noticed_after_one_that_only_hangs(self) -> None:
        assert float(UNIT["WatchdogSec"]) > Limits().hang_seconds + BEAT_SECONDS
        assert "Type" not in UNIT, "another one would have to be notified of more than that"
        liveness = GATEWAY["livenessProbe"]
        assert liveness["periodSeconds"] * liveness["failureThreshold"] > Limits().hang_seconds


class TestVariablesAndFiles:
    def test_every_variable_of_ours_is_one_that_is_read(self) -> None:
        for path in DEPLOY.rglob("*"):
            if path.is_file():
                named = set(re.findall(r"\b(MOONSHIM_[A-Z_]+|[A-Z]+_API_KEY)\b", path.read_text()))
                assert named <= OURS | set(LOOKED_FOR), path

    @pytest.mark.parametrize("place", CONFIGURATIONS)
    def test_variables_of_the_configuration_are_given_to_it(self, place: str) -> None:
        needed = set(re.findall(r"\$\{(\w+)\}|api_key_env = \"(\w+)\"", CONFIGURATIONS[place]))
        names = {name for pair in needed for name in pair if name}
        assert names == {"MOONSHIM_KEY_DIGEST", "MOONSHOT_API_KEY"}
        if place == "systemd":
            assert UNIT["EnvironmentFile"] in (DEPLOY / "moonshim.service").read_text().partition("[Unit]")[0]
            return
        assert names <= ENVIRONMENTS[place].keys()

    @pytest.mark.parametrize("place", ENVIRONMENTS)
    def test_the_store_is_one_that_several_share(self, place: str) -> None:
        assert store_kind(ENVIRONMENTS[place]["MOONSHIM_STORE"]) in {"redis", "sqlite"}

    def test_redis_is_where_the_gateway_looks_for_it(self) -> None:
        assert ENVIRONMENTS["compose.yaml"]["MOONSHIM_STORE"] == "redis://redis:6379/0"
        assert "redis" in COMPOSE["services"]
        service = kind("Service", "moonshim-redis")
        assert ENVIRONMENTS["kubernetes"]["MOONSHIM_STORE"] == f"redis://{service['metadata']['name']}:6379/0"
        assert service["spec"]["ports"][0]["port"] == 6379

    def test_the_configuration_is_where_the_command_looks_for_it(self) -> None:
        mount, _ = COMPOSE["services"]["gateway"]["volumes"]
        source, target, mode = mount.split(":")
        assert (target, mode) == (understood("compose.yaml").config, "ro")
        assert (DEPLOY / source).is_file()
        (folder,) = [one["mountPath"] for one in GATEWAY["volumeMounts"] if one["name"] == "configuration"]
        assert understood("kubernetes").config == f"{folder}/{next(iter(kind('ConfigMap')['data']))}"
        assert not any("subPath" in one for one in GATEWAY["volumeMounts"]), "a change would never arrive"

    def test_what_is_written_can_be_written(self) -> None:
        assert COMPOSE["services"]["gateway"]["read_only"]
        assert COMPOSE["services"]["gateway"]["tmpfs"] == ["/tmp"], "workers share their counters there"
        assert {"name": "scratch", "mountPath": "/tmp"} in GATEWAY["volumeMounts"]
        assert understood("systemd").log_dir == f"/var/log/{UNIT['LogsDirectory']}"
        assert f"/var/lib/{UNIT['StateDirectory']}/" in UNIT["Environment"]

    def test_usage_records_are_on_a_volume(self) -> None:
        """They say what budgets have used, if Redis has lost its data."""
        (line,) = re.findall("^ENV (.*)", CONTAINER, re.MULTILINE)
        image = dict(pair.split("=", 1) for pair in shlex.split(line))
        folder = default_file(image)
        assert folder is not None
        assert str(folder.parent) == "/var/lib/moonshim" == re.findall(r"^VOLUME (\S+)$", CONTAINER, re.MULTILINE)[0]
        assert default_file(ENVIRONMENTS["systemd"]) == folder
        (volume,) = [one for one in COMPOSE["services"]["gateway"]["volumes"] if one.endswith(":/var/lib/moonshim")]
        assert volume.partition(":")[0] in COMPOSE["volumes"]
        assert {"name": "records", "mountPath": "/var/lib/moonshim"} in GATEWAY["volumeMounts"]
        assert "records" in {one["name"] for one in POD["spec"]["volumes"]}
        assert POD["spec"]["securityContext"]["fsGroup"] == POD["spec"]["securityContext"]["runAsUser"]

    def test_redis_does_not_forget_when_it_is_restarted(self) -> None:
        redis = kind("Deployment", "moonshim-redis")["spec"]["template"]["spec"]
        (container,) = redis["containers"]
        for arguments in (COMPOSE["services"]["redis"]["command"], container["args"]):
            assert arguments[arguments.index("--appendonly") + 1] == "yes"
            assert arguments[arguments.index("--maxmemory-policy") + 1] == "volatile-lru", "counters stay"
            memory = int(arguments[arguments.index("--maxmemory") + 1].removesuffix("mb")) * 1024 * 1024
            assert memory >= 4 * Config().redis_key_bytes
        assert COMPOSE["services"]["redis"]["volumes"] == ["redis:/data"]
        assert "redis" in COMPOSE["volumes"]
        assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
        (volume,) = redis["volumes"]
        claim = kind("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
        assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]

    def test_the_image_is_made_from_files_that_are_there_and_runs_as_nobody(self) -> None:
        for names in re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINER, re.MULTILINE):
            assert all((DEPLOY.parent / name).exists() for name in names.split()), names
        (user,) = re.findall(r"^USER (\d+)$", CONTAINER, re.MULTILINE)
        assert int(user) == POD["spec"]["securityContext"]["runAsUser"] > 0
        assert "[all]" in CONTAINER, "Redis needs its client"


class TestKubernetes:
    def test_everything_is_applied(self) -> None:
        listed = documents(KUBERNETES / "kustomization.yaml")[0]["resources"]
        assert sorted([*listed, "kustomization.yaml"]) == sorted(path.name for path in KUBERNETES.iterdir())

    def test_what_selects_pods_finds_them(self) -> None:
        labels = POD["metadata"]["labels"].items()
        assert kind("Deployment")["spec"]["selector"]["matchLabels"].items() <= labels
        assert kind("Service")["spec"]["selector"].items() <= labels
        assert kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels
        assert kind("Service")["spec"]["ports"][0]["targetPort"] == GATEWAY["ports"][0]["name"]

    def test_the_autoscaler_scales_the_gateway_and_has_a_share_to_measure(self) -> None:
        scaler = kind("HorizontalPodAutoscaler")["spec"]
        assert scaler["scaleTargetRef"]["name"] == kind("Deployment")["metadata"]["name"]
        assert "replicas" not in kind("Deployment")["spec"], "each apply would undo what the autoscaler did"
        assert "cpu" in GATEWAY["resources"]["requests"]
        assert kind("PodDisruptionBudget")["spec"]["minAvailable"] < scaler["minReplicas"]

    def test_the_secret_that_is_described_has_all_that_is_taken_from_it(self) -> None:
        taken = {one["valueFrom"]["secretKeyRef"]["key"] for one in GATEWAY["env"] if "valueFrom" in one}
        described = re.findall(r"--from-literal=(\w+)=", (KUBERNETES / "kustomization.yaml").read_text())
        assert taken == set(described)
