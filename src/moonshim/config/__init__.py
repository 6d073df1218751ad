"""A configuration file, or the environment -> a `Config`."""

from moonshim.config.endpoints import endpoint_of, profile_of, without_secrets
from moonshim.config.environment import LOOKED_FOR, config_from_environment
from moonshim.config.example import EXAMPLE
from moonshim.config.files.find import FoundConfig, look_for_config, new_config_path
from moonshim.config.load import load_config, load_keys, parse_config
from moonshim.config.model import (
    Budget,
    BudgetPeriod,
    BudgetRules,
    ClaudeCode,
    Config,
    GatewayKey,
    KeySource,
    Limits,
    OtelExport,
    Price,
    ProviderConfig,
    Retries,
    RouteName,
    Routes,
    Secret,
    Target,
    Timeouts,
    TransformerUse,
    UsageBooks,
    WebSearch,
)
from moonshim.config.problems import ConfigError
from moonshim.config.trust import load_found
from moonshim.config.warnings import warnings_of

__all__ = [
    "EXAMPLE",
    "LOOKED_FOR",
    "Budget",
    "BudgetPeriod",
    "BudgetRules",
    "ClaudeCode",
    "Config",
    "ConfigError",
    "FoundConfig",
    "GatewayKey",
    "KeySource",
    "Limits",
    "OtelExport",
    "Price",
    "ProviderConfig",
    "Retries",
    "RouteName",
    "Routes",
    "Secret",
    "Target",
    "Timeouts",
    "TransformerUse",
    "UsageBooks",
    "WebSearch",
    "config_from_environment",
    "endpoint_of",
    "load_config",
    "load_found",
    "load_keys",
    "look_for_config",
    "new_config_path",
    "parse_config",
    "profile_of",
    "warnings_of",
    "without_secrets",
]
