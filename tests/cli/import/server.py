"""An MCP server whose tools are those that a file lists, read anew at each question.

The text of a tool may hold {KEY}, a variable of the environment: a server may repeat what it was given.
"""

import json
import os
import sys


def tools(path):
    with open(path, encoding="utf-8") as file:
        listed = json.load(file)
    for tool in listed:
        if isinstance(tool.get("description"), str):
            tool["description"] = tool["description"].replace("{KEY}", os.environ.get("KEY", ""))
    return listed


def answer(message, path):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        info = {"name": "changing", "version": "1.0"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info,
                "instructions": "Greet politely."}
    if method == "tools/list":
        return {"tools": tools(path)}
    if method == "tools/call":
        text = json.dumps({"tool": params["name"], "arguments": params.get("arguments", {})}, sort_keys=True)
        return {"content": [{"type": "text", "text": text}]}
    return None


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message, sys.argv[1])
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "unknown method"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)


main()
