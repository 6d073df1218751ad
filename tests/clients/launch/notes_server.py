"""A user's MCP server with one tool. Clients start it as a script, so that it imports nothing of this repository."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = "recall_note"


def _result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            version = params.get("protocolVersion", "2025-06-18")
            server = {"name": "notes", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            return {"tools": [{"name": TOOL, "description": "Recall a note.", "inputSchema": schema}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": "Buy milk."}]}
        case _:
            return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = _result(message["method"], message.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
