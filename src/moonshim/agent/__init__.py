"""An agent on Kimi models: a provider that gets streaming tool calls right, and the loop on it. No terminal in here."""
