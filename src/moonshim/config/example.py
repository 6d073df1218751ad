"""The output of `moonshim config example`: a configuration with every setting, most of it commented out."""

from __future__ import annotations

from typing import Final

__all__ = ["EXAMPLE"]

EXAMPLE: Final = """\
# Moonshim reads this file as moonshim.toml in the folder where it runs, once `moonshim trust` was told so there, or
# wherever --config or MOONSHIM_CONFIG says.
# `moonshim config check` says whether it is right. Every key: docs/configuration.md
# Values may have variables in them: ${VAR}, ${VAR:-default}.

# --- hosts ------------------------------------------------------------------------------------------------------

[[providers]]
name = "moonshot"
api_base_url = "https://api.moonshot.ai/v1"
api_key_env = "MOONSHOT_API_KEY"              # or api_key, api_keys = […], api_key_file = "keys/moonshot"
models = ["kimi-k3", "kimi-k2.6"]

[[providers]]
name = "openrouter"
api_base_url = "https://openrouter.ai/api/v1"
api_key_env = "OPENROUTER_API_KEY"
# No models: any of its names is passed on, as openrouter/NAME.

# A server of your own.
# [[providers]]
# name = "vllm"
# api_base_url = "http://localhost:8000/v1"
# host = "vllm"                               # which row of the host table holds; found from the address otherwise
# dialect = "openai_chat"                     # or "anthropic"
# models = ["kimi-k2.5", { id = "my-finetune", context_window = 131072, body = { top_k = 40 } }]
# tool_limit = 64                             # any cell of the host table (docs/hosts.md)
# cells = { context_window = 262144 }         # several cells in one table
# body = { top_k = 20 }                       # fields that are added to every request
# retry_empty_answer = true                   # an answer of only reasoning is asked for once more
# passes_client_key = true                    # the client's own key goes to this host
# ca_bundle = "certificates.pem"
# proxy = "http://proxy.internal:3128"
# headers = { X-Team = "agents" }
# timeouts = { connect = 5, first_byte = 300, between_bytes = 60 }
# transformer = { use = [["Kimi", { manualToolParsing = true }]] }

# --- names ------------------------------------------------------------------------------------------------------

# What clients may ask for besides the names above. Several are asked in turn, when one cannot answer.
[aliases]
"claude-*" = ["moonshot/kimi-k3", "openrouter/moonshotai/kimi-k3"]
"gpt-*" = "moonshot/kimi-k3"

# --- who may use it ---------------------------------------------------------------------------------------------

# Without keys, only this machine is served. `moonshim keys new ci` makes one and adds this table to your configuration
# file; with --print it only prints both.
# [[keys]]
# name = "ci"
# digest = "sha256:…"
# models = ["kimi-*"]
# expires = 2027-12-31
# requests_per_minute = 60
# tokens_per_minute = 200000
# concurrent_streams = 4

# --- the gateway itself -----------------------------------------------------------------------------------------

# [gateway]
# host = "127.0.0.1"
# port = 8484
# workers = 1                                 # more than one needs a store that they share
# store = "memory:"                           # or "sqlite:moonshim.db", "redis://localhost:6379/0"
# secret_env = "MOONSHIM_SECRET"
# heartbeat_seconds = 10
# remember_seconds = 604800
# memory_bytes = 268435456
# sqlite_bytes = 4294967296
# allowed_hosts = ["gateway.internal"]
# allowed_origins = ["https://chat.example.com"]
# open_without_keys = false
# require_keys = true                         # no request without a key, even when none is left
# log_dir = "logs"
# log_level = "info"

# Of every provider, in seconds.
# [timeouts]
# connect = 10
# first_byte = 600
# between_bytes = 120

# [retries]
# attempts = 3
# longest_wait = 20
# budget = 0.2
# breaker_failures = 5
# breaker_seconds = 30

# [limits]
# body_bytes = 67108864
# header_bytes = 65536
# header_seconds = 20
# body_seconds = 120
# body_values = 200000                        # JSON values in a large body
# key_bytes_in_flight = 134217728             # of all requests of one key
# bytes_in_flight = 536870912                 # of all requests
# queue_seconds = 10                          # how long a request waits for room
# max_answer_bytes = 67108864                 # of a host's answer, streamed or whole

# What a million tokens cost, as your host says: `moonshim chat` shows what a conversation has cost.
# [prices]
# "kimi-k2.5" = { input = 0.60, output = 3.00, cached = 0.10 }
"""
