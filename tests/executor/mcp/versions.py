"""A server of the current release of the official Python SDK: `python versions.py stdio|streamable-http [PORT]`."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("new")


@server.tool(structured_output=False)
def add(a: float, b: float) -> str:
    """Adds two numbers."""
    return f"sum: {a + b:g}"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]))
