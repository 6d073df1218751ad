"""Repair: what a host sent -> what an OpenAI client expects; each rule lives here once."""
