"""Identifiers of tool calls: canonical ones, those of each provider, and the repair of wrong ones."""

from moonshim.engine.ids.mapper import Strategy, ToolIdMapper, tool_id_strategy
from moonshim.engine.ids.repair import IdRepairer
from moonshim.engine.ids.spelling import CanonicalIds, canonical_id

__all__ = ["CanonicalIds", "IdRepairer", "Strategy", "ToolIdMapper", "canonical_id", "tool_id_strategy"]
