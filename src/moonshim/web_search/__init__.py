"""Web search for models: a query -> pages, from a search provider or a command."""

from moonshim.web_search.run import SearchFailed, run_search

__all__ = ["SearchFailed", "run_search"]
