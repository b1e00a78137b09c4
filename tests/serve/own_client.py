"""Our own client for Python.

python own_client.py URL COMMAND, where COMMAND is JSON: {"ask_key", "decide_key", "policy", "message"} asks and decides;
with "gate" in place of "message" it decides that gate; with "gates" it lists what waits. Prints one JSON object.
"""

import json
import sys

from agent_magic_tool_client import ApiError, Client, Decider, Verdict, approve_all, by_kind, by_subtool, reject_all

url, command = sys.argv[1], json.loads(sys.argv[2])
POLICIES = {
    "reject_all": lambda rules: reject_all,
    "approve_all": lambda rules: approve_all,
    "by_subtool": by_subtool,
    "by_kind": by_kind,
    "function": lambda note: lambda gate: Verdict(gate["fields"][0]["value"]["text"] == note, note="by hand"),
    "answer": lambda answer: lambda gate: Verdict(True, answer=answer),
    "nothing": lambda rules: lambda gate: None,
    "words": lambda rules: lambda gate: "yes",
    "fails": lambda rules: lambda gate: gate["no such field"],
}


def plain(outcome):
    return {"subtool": outcome.gate["subtool"], "result": outcome.result, "reason": outcome.reason}


def main():
    [(name, rules)] = command.get("policy", {"reject_all": None}).items()
    key, policy = command["decide_key"], POLICIES[name](rules)
    if "gates" in command:
        asked_by = {"asked_by": command["ask_key"]} if "ask_key" in command else {}
        return {"gates": Decider(url, key, **asked_by).gates()}
    if "gate" in command:
        return plain(Decider(url, key, policy).decide(command["gate"]))
    client = Client(url, command["ask_key"])
    with client.decided_by(key) if name == "reject_all" else client.decided_by(key, policy) as decider:
        events = list(client.ask(command["message"]))
    names = sorted({event.name for event in events})
    return {"answer": events[-1].data["answer"], "events": names, "outcomes": [plain(one) for one in decider.outcomes]}


try:
    print(json.dumps(main()))
except ApiError as error:
    print(json.dumps({"status": error.status, "code": error.code}))
except (TypeError, ValueError) as error:
    print(json.dumps({"wrong": str(error)}))
