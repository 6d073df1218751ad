"""OpenAI Chat Completions, the protocol of Kimi hosts."""
