"""The output of `moonshim config example`: a configuration with every setting, most of it commented out."""

from __future__ import annotations

from typing import Final

__all__ = ["EXAMPLE"]

EXAMPLE: Final = """\
# Moonshim configuration. Save it as ~/.config/moonshim/moonshim.toml, or pass it with --config or MOONSHIM_CONFIG.
# A moonshim.toml in the current folder is used after you run `moonshim trust` there.
# Validate it with `moonshim config check`. All keys: docs/reference/configuration.md
# Strings can contain environment variables: ${VAR}, ${VAR:-default}.

# --- Providers --------------------------------------------------------------------------------------------------

[[providers]]
name = "moonshot"
api_base_url = "https://api.moonshot.ai/v1"
api_key_env = "MOONSHOT_API_KEY"              # or api_key, api_keys = […], api_key_file = "keys/moonshot"
models = ["kimi-k3", "kimi-k3.1-pro", "kimi-k2.6"]

[[providers]]
name = "openrouter"
api_base_url = "https://openrouter.ai/api/v1"
api_key_env = "OPENROUTER_API_KEY"
# No `models` listed: request any model of this provider as openrouter/NAME.

# A self-hosted server.
# [[providers]]
# name = "vllm"
# api_base_url = "http://localhost:8000/v1"
# host = "vllm"                               # host profile to use (default: detected from the address)
# dialect = "openai_chat"                     # or "anthropic"
# models = ["kimi-k2.5", { id = "my-finetune", context_window = 131072, body = { top_k = 40 } }]
# tool_limit = 64                             # any field of the host profile (docs/reference/hosts.md)
# cells = { context_window = 262144 }         # several fields of the host profile in one table
# body = { top_k = 20 }                       # fields to add to every request
# retry_empty_answer = false                  # do not ask again if the model's answer cannot be used
# passes_client_key = true                    # forward the client's own API key to this host
# ca_bundle = "certificates.pem"
# proxy = "http://proxy.internal:3128"
# headers = { X-Team = "agents" }
# timeouts = { connect = 5, first_byte = 300, between_bytes = 60 }
# transformer = { use = [["Kimi", { manualToolParsing = true }]] }

# --- Model aliases ----------------------------------------------------------------------------------------------

# Further model names that clients can request. With a list, the next model is tried if one fails.
[aliases]
"claude-*" = ["moonshot/kimi-k3", "openrouter/moonshotai/kimi-k3"]
"gpt-*" = "moonshot/kimi-k3"

# Other models for some kinds of requests, if their model name matched a pattern above. The first that applies is used.
# [routes]
# image = "moonshot/kimi-k3"                  # the last user turn has an image
# web_search = "moonshot/kimi-k3"             # a web search tool is declared
# long_context = ["moonshot/kimi-k3", "openrouter/moonshotai/kimi-k3"]
# long_context_tokens = 60000                 # estimated tokens; the conversation then stays on this route
# background = "moonshot/kimi-k2.6"           # the client's small model
# background_models = ["*haiku*"]             # the names of small models
# think = "moonshot/kimi-k3"                  # thinking is requested

# --- Gateway keys -----------------------------------------------------------------------------------------------

# Without keys, the gateway serves only this machine. `moonshim keys new ci` creates a key and adds this table to your
# configuration file; with --print it only prints both.
# [[keys]]
# name = "ci"
# digest = "sha256:…"
# models = ["kimi-*"]
# expires = 2027-12-31
# requests_per_minute = 60
# tokens_per_minute = 200000
# concurrent_streams = 4
# budgets = [{ period = "day", limit = "5.00" }, { period = "month", tokens = 2000000, soft = true }]
# rights = ["usage"]                          # see the usage of all keys at GET /v1/usage

# --- Gateway ----------------------------------------------------------------------------------------------------

# [gateway]
# host = "127.0.0.1"
# port = 8484
# workers = 1                                 # more than one requires a shared store (sqlite: or redis://)
# store = "memory:"                           # or "sqlite:moonshim.db", "redis://localhost:6379/0"
# secret_env = "MOONSHIM_SECRET"
# heartbeat_seconds = 10                      # interval of heartbeats to a client that waits for a stream
# remember_seconds = 604800                   # how long reasoning and Responses state are stored
# memory_bytes = 268435456                    # maximum size of the memory: store
# sqlite_bytes = 4294967296                   # maximum size of the sqlite: file
# redis_key_bytes = 67108864                  # how much the conversations of one key may take in Redis
# allowed_hosts = ["gateway.internal"]
# allowed_origins = ["https://chat.example.com"]
# open_without_keys = false
# require_keys = true                         # require a key even if the file has no keys left
# inspector = "private"                       # /inspector without texts; false: no inspector
# inspector_bytes = 67108864
# log_dir = "logs"
# log_level = "info"

# Timeouts for all providers, in seconds.
# [timeouts]
# connect = 10
# first_byte = 600
# between_bytes = 120

# [retries]
# attempts = 3
# longest_wait = 20                           # seconds; if a host asks for a longer delay, it is not retried
# budget = 0.2                                # maximum average number of retries per request
# breaker_failures = 5                        # how many more failures than successes open the circuit breaker
# breaker_seconds = 30                        # how long an open breaker stops requests to a provider

# [budgets]
# on_unknown = "count"                        # or "refuse", if neither store nor usage records say what was used before

# [limits]
# body_bytes = 67108864
# header_bytes = 65536
# header_seconds = 20
# body_seconds = 120
# body_values = 200000                        # JSON values in a large request body
# key_bytes_in_flight = 134217728             # request bytes in memory, per key
# bytes_in_flight = 536870912                 # request bytes in memory, all keys
# queue_seconds = 10                          # how long a request waits for memory before a 503
# max_answer_bytes = 67108864                 # size of a provider's response, streamed or not
# hang_seconds = 10                           # CPU time after which a process that hangs is ended

# Who runs the web search of Claude Code, Codex and other clients (docs/guides/web-search.md). To use your own program,
# set the provider to "command", and command = ["/usr/local/bin/search"].
# [web_search]
# provider = "brave"                          # or "tavily", "exa", "searxng", "command"
# api_key_env = "BRAVE_API_KEY"               # or api_key
# base_url = "http://localhost:8080"          # of your SearXNG; for others, to use another address
# results = 8
# seconds = 15
# price = "0.005"                             # of one search; searxng and command: 0, others: unknown
# currency = "$"

# Claude Code's auto mode: a model of yours decides whether a tool may run (docs/guides/claude-code-judge.md).
# [claude_code]
# judge_model = "moonshot/kimi-k2.6"          # without it, Claude Code checks by itself
# judge_seconds = 10                          # after this time, a call counts as flagged

# Traces for an OpenTelemetry collector; requires moonshim[otel]. An empty table uses the OTEL_* variables.
# [otel]
# endpoint = "http://localhost:4318"
# headers = { X-Team = "agents" }
# service_name = "moonshim"
# text = false                                # true: spans contain prompts and responses

# Prices per million tokens, from your provider's price list. They override the shipped prices.
# [prices]
# "kimi-k3" = { input = "3.00", output = "15.00", cached = "0.30", cache_write = "3.00", cache_write_1h = "6.00" }
"""
