"""Configuration files in TOML or JSON -> values, with the line of each."""
