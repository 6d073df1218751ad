"""The chain that users configure: names and options -> transformers, which change requests and replies."""
