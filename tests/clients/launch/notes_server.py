"""A user's MCP server with one tool, and with a word as its argument, another tool that returns it and has a schema of
400 KB. Clients start it as a script, so that it imports nothing of this repository."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = "recall_note"
LARGE_TOOL = "file_note"


def _large_schema() -> dict[str, Any]:
    """As generators write them: every field of every section is described at length."""
    words = "The value of this field, as the archive wants to have it on its form. " * 5
    fields = {f"field_{number}": {"type": "string", "description": f"{number}: {words}"} for number in range(40)}
    section = {"type": "object", "description": words, "properties": fields}
    sections = {f"section_{number}": {**section, "title": f"Section {number}"} for number in range(25)}
    subject = {"type": "string", "description": "What the note is about."}
    return {"type": "object", "properties": {"subject": subject, **sections}, "required": ["subject"]}


def _tools() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {}}
    recall = {"name": TOOL, "description": "Recall a note.", "inputSchema": schema}
    file = {"name": LARGE_TOOL, "description": "File a note.", "inputSchema": _large_schema()}
    return [recall, file] if len(sys.argv) > 1 else [recall]


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"Filed {arguments.get('subject')} as {sys.argv[1]}." if name == LARGE_TOOL else "Buy milk."


def _result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            version = params.get("protocolVersion", "2025-06-18")
            server = {"name": "notes", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": _tools()}
        case "tools/call":
            return {"content": [{"type": "text", "text": _call(params["name"], params.get("arguments") or {})}]}
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
