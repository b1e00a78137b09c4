"""Calls the tools of a server with the official SDK, for comparison: `python direct.py SERVER CALLS`, both JSON.

Prints one result a line, as the server sent it.
"""

import asyncio
import json
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters


async def main():
    server, calls = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    command, *arguments = server["command"]
    parameters = StdioServerParameters(command=command, args=arguments, env=server["env"])
    async with Client(parameters, read_timeout_seconds=60) as client:
        for tool, given, *_ in calls:
            result = await client.call_tool(tool, given)
            print(json.dumps(result.model_dump(mode="json", by_alias=True, exclude_none=True)))


asyncio.run(main())
