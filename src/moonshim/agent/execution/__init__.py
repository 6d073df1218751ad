"""The tool calls of a response -> their results: run in parallel, bounded, and stoppable."""
