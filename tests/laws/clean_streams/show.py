"""The seed and the number of a clean stream -> everything about it, and what is wrong with what a client gets.

python -m tests.laws.clean_streams.show 0 17
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.laws.clean_streams.compare import differences
from tests.laws.clean_streams.streams import clean_case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed")
    parser.add_argument("number", type=int)
    arguments = parser.parse_args()
    case = clean_case(arguments.seed, arguments.number)
    sent = json.dumps(case.body, ensure_ascii=False) if case.body else b"".join(case.pieces).decode()
    wrong = "\n".join(differences(case)) or "nothing"
    request = json.dumps(case.request, ensure_ascii=False)
    sys.stdout.write(f"{case.title}\n\nrequest: {request}\n\nresponse:\n{sent}\n\nwrong: {wrong}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
