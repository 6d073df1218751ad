"""A configuration file, or the environment -> a `Config`."""

from moonshim.config.model import (
    Config,
    GatewayKey,
    Limits,
    Provider,
    Retries,
    Secret,
    Target,
    Timeouts,
    TransformerUse,
)

__all__ = [
    "Config",
    "GatewayKey",
    "Limits",
    "Provider",
    "Retries",
    "Secret",
    "Target",
    "Timeouts",
    "TransformerUse",
]
