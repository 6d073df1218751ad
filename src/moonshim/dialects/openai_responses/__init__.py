"""The protocol of OpenAI's Responses, which Codex speaks."""

from moonshim.dialects.openai_responses.dialect import OPENAI_RESPONSES
from moonshim.dialects.openai_responses.references import left_behind, resolve_references

__all__ = ["OPENAI_RESPONSES", "left_behind", "resolve_references"]
