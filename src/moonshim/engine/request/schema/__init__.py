"""JSON Schema as clients write it -> Moonshot's flavour of it."""
