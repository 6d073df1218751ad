"""Tool call ids: the canonical form, each provider's form, and the repair of invalid ids."""

from moonshim.engine.ids.mapper import Strategy, ToolIdMapper, tool_id_strategy
from moonshim.engine.ids.repair import IdRepairer
from moonshim.engine.ids.spelling import CanonicalIds, canonical_id

__all__ = ["CanonicalIds", "IdRepairer", "Strategy", "ToolIdMapper", "canonical_id", "tool_id_strategy"]
