"""The inspector: a page that shows every exchange live."""
