"""A request -> the first reason for which the real API refuses it, in the order of its checks."""

from __future__ import annotations

from moonshim.simulator.rules.objection import Objection
from moonshim.simulator.rules.request_rules import check, check_chat, check_messages

__all__ = ["Objection", "check", "check_chat", "check_messages"]
