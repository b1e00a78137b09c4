"""A client of the official Python SDK, driven by JSON lines on standard input; each gets one line in return.

The first argument is {"command": [...], "env": {...}, "cwd": ...} or {"url", "key"}, with "mode" and "tasks".
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar, Literal

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

TASKS = "io.modelcontextprotocol/tasks"


class CreatedTask(types.Result):
    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"]


class TaskRequest(types.Request):
    name_param: ClassVar[str] = "taskId"
    method: str
    params: dict


class AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def never(_result, _context):
    raise RuntimeError("the driver asks for the task itself")


class Tasks(ClientExtension):
    identifier = TASKS

    def claims(self):
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=never)]


async def main():
    settings = json.loads(sys.argv[1])
    events = []

    async def on_message(message):
        if hasattr(message, "method"):
            events.append(plain(message))

    # Removes the file that holds the called tool up, so that the call ends only after progress was told.
    def remover(path):
        async def on_progress(progress, total, message):
            events.append({"method": "progress", "progress": progress, "message": message})
            Path(path).unlink(missing_ok=True)

        return on_progress

    async with AsyncExitStack() as stack:
        if "url" in settings:
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {settings['key']}"}, timeout=60)
            )
            server = streamable_http_client(settings["url"], http_client=http)
        else:
            command, *arguments = settings["command"]
            server = StdioServerParameters(
                command=command, args=arguments, env=settings["env"], cwd=settings["cwd"]
            )
        client = await stack.enter_async_context(
            Client(
                server,
                mode=settings["mode"],
                message_handler=on_message,
                client_info=types.Implementation(name="python-sdk", version="1"),
                extensions=[Tasks()] if settings.get("tasks") else None,
                cache=None,
            )
        )

        async def listen(filters):
            async with client.listen(**filters) as subscription:
                events.append({"method": "listening"})
                async for event in subscription:
                    events.append({"method": type(event).__name__, "uri": getattr(event, "uri", None)})

        listeners = []

        async def do(line):
            match line["op"]:
                case "version":
                    return {"version": client.protocol_version, "instructions": client.instructions}
                case "list_tools":
                    return plain(await client.list_tools())
                case "call":
                    return plain(
                        await client.session.call_tool(
                            line["name"],
                            line["arguments"],
                            progress_callback=remover(line["held"]) if "held" in line else None,
                            meta=line.get("meta"),
                            allow_claimed=True,
                        )
                    )
                case "list_resources":
                    return plain(await client.list_resources())
                case "list_templates":
                    return plain(await client.list_resource_templates())
                case "read":
                    return plain(await client.read_resource(line["uri"]))
                case "subscribe":
                    return plain(await client.subscribe_resource(line["uri"]))
                case "listen":
                    listeners.append(asyncio.create_task(listen(line["filter"])))
                    return {}
                case "list_prompts":
                    return plain(await client.list_prompts())
                case "get_prompt":
                    return plain(await client.get_prompt(line["name"], line.get("arguments")))
                case "request":
                    request = TaskRequest(method=line["method"], params=line["params"])
                    return plain(await client.session.send_request(request, AnyResult))
                case "events":
                    return events

        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                answer = {"ok": await do(json.loads(line))}
            except MCPError as error:
                answer = {"error": {"code": error.error.code, "message": error.error.message}}
            print(json.dumps(answer), flush=True)
        for listener in listeners:
            listener.cancel()


asyncio.run(main())
