"""The chain that users configure: names and options -> transformers, which change requests and replies."""

from moonshim.transformers.chain import Chain, load_chain
from moonshim.transformers.kimi import Kimi
from moonshim.transformers.log import Log

__all__ = ["Chain", "Kimi", "Log", "load_chain"]
