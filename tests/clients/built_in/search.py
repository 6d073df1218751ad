"""A query -> one page, which has the word of the first argument: a search service, as the gateway runs it."""

import json
import sys

if __name__ == "__main__":
    query = sys.stdin.read()
    page = {"url": "https://found.example/page", "title": "A page", "text": f"{query} is about {sys.argv[1]}."}
    sys.stdout.write(json.dumps([page]))
