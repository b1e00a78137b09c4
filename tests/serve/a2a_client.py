"""A client made with the protocol's own Python SDK, unchanged.

python a2a_client.py URL BINDING ACTION [WORD] [CONTEXT]

BINDING is jsonrpc, rest or legacy (version 0.3). It prints one JSON line for each thing that it is told.
"""

import asyncio
import json
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from google.protobuf.json_format import MessageToDict


def say(thing):
    print(json.dumps(thing), flush=True)


async def main():
    url, binding, action = sys.argv[1:4]
    word, context = (sys.argv[4:] + ["", ""])[:2]
    http = httpx.AsyncClient(timeout=120)
    card = await A2ACardResolver(http, url).get_agent_card()
    if action == "card":
        return say(MessageToDict(card))
    wanted = {"jsonrpc": ("JSONRPC", "1.0"), "rest": ("HTTP+JSON", "1.0"), "legacy": ("JSONRPC", "0.3")}[binding]
    kept = [i for i in card.supported_interfaces if (i.protocol_binding, i.protocol_version) == wanted]
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(kept)
    config = ClientConfig(
        httpx_client=http,
        streaming=action in ("stream", "subscribe"),
        polling=action == "poll",
        supported_protocol_bindings=[wanted[0]],
    )
    client = ClientFactory(config).create(card)
    if action in ("stream", "send", "poll"):
        parts = [Part(url=word)] if word.startswith("https:") else [Part(text=word)]
        message = Message(message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=parts, context_id=context)
        async for event in client.send_message(SendMessageRequest(message=message)):
            say(MessageToDict(event))
    elif action == "subscribe":
        async for event in client.subscribe(SubscribeToTaskRequest(id=word)):
            say(MessageToDict(event))
    elif action == "get":
        say(MessageToDict(await client.get_task(GetTaskRequest(id=word))))
    elif action == "cancel":
        say(MessageToDict(await client.cancel_task(CancelTaskRequest(id=word))))
    elif action == "list":
        listed = await client.list_tasks(ListTasksRequest(context_id=context, include_artifacts=True))
        say(MessageToDict(listed))


async def guarded():
    try:
        await main()
    except Exception as error:  # the tests read which of the SDK's errors it is
        say({"error": type(error).__name__, "message": str(error)})


asyncio.run(guarded())
