"""Decides by a policy from the command line: python3 -m agent_magic_tool_client --by-kind '{"read": true}'"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from .connection import ApiError
from .decider import Decider
from .policy import Policy, approve_all, by_kind, by_subtool, reject_all


def rules(text: str) -> dict[str, Any]:
    """The rules of a policy."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('it is no JSON object, like {"read": true}')
    return found


parser = argparse.ArgumentParser(
    prog="agent-magic-tool-decide",
    description="Decides what waits for a human, until it is stopped. The API key is read from AGENT_MAGIC_TOOL_DECIDE_KEY. "
    "Without a policy, everything is denied.",
)
parser.add_argument("--url", default="http://127.0.0.1:8790")
policies = parser.add_mutually_exclusive_group()
policies.add_argument("--approve-all", action="store_true")
policies.add_argument("--by-subtool", type=rules, metavar="JSON", help='like {"note_*": true}')
policies.add_argument("--by-kind", type=rules, metavar="JSON", help='like {"read": true, "write": false}')


def decider_of(given: argparse.Namespace) -> Decider:
    key = os.environ.get("AGENT_MAGIC_TOOL_DECIDE_KEY")
    if not key:
        parser.error("set AGENT_MAGIC_TOOL_DECIDE_KEY to an API key that may decide")
    policy: Policy = reject_all
    try:
        if given.approve_all:
            policy = approve_all
        elif given.by_subtool is not None:
            policy = by_subtool(given.by_subtool)
        elif given.by_kind is not None:
            policy = by_kind(given.by_kind)
        return Decider(given.url, key, policy)
    except (TypeError, ValueError) as error:
        parser.error(str(error))


def main() -> int:
    decider = decider_of(parser.parse_args())
    try:
        for outcome in decider.run():
            line = {"id": outcome.gate["id"], "subtool": outcome.gate["subtool"], "result": outcome.result}
            print(json.dumps({**line, "reason": outcome.reason} if outcome.reason else line), flush=True)
    except ApiError as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, TypeError, ValueError) as error:
        print(f"the decider stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
