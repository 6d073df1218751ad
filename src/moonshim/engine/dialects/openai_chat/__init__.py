"""The protocol of OpenAI's chat completions, which Kimi hosts speak."""
