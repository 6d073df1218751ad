"""Shorthand for the tests of the configuration: a text -> a configuration, or its problems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from moonshim.config import Config, ConfigError, parse_config


def toml(text: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Config:
    return parse_config(dedent(text), suffix=".toml", environ=environ or {}, source="moonshim.toml", folder=folder)


def json_(text: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Config:
    return parse_config(text, suffix=".json", environ=environ or {}, source="moonshim.json", folder=folder)


def problems(text: str, *, suffix: str = ".toml", environ: Mapping[str, str] | None = None) -> list[str]:
    """What is told of a text that cannot be used."""
    with pytest.raises(ConfigError) as caught:
        parse_config(dedent(text), suffix=suffix, environ=environ or {}, source=f"moonshim{suffix}")
    return caught.value.problems


PROVIDER = """\
[[providers]]
name = "vllm"
api_base_url = "http://localhost:8000/v1"
models = ["kimi-k2.5"]
"""
