"""An agent made with the protocol's own Python SDK.

python a2a_server.py [--legacy]

It prints its address and serves until standard input ends. What it does is said by the first word of a message: echo,
data, ask, wait (until it is cancelled), fail, reject, reply (a message without a task), who (metadata and context), die.
"""

import asyncio
import os
import socket
import sys
import threading

import uvicorn
from a2a.helpers import new_data_artifact_update_event, new_text_artifact_update_event
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette


class Agent(AgentExecutor):
    def __init__(self):
        self.cancelled = []

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "reply":
            await event_queue.enqueue_event(new_text_message(f"you said {rest}", context_id=context.context_id))
            return
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        said = lambda words: updater.new_agent_message([Part(text=words)])
        await updater.start_work(said("I begin"))
        if word == "die":
            os._exit(9)
        if word == "wait":
            await asyncio.sleep(600)
        elif word == "fail":
            await updater.failed(said("it did not work"))
        elif word == "reject":
            await updater.reject(said("not that"))
        elif word == "ask":
            await updater.requires_input(said("Which one?"))
        elif word == "data":
            event = new_data_artifact_update_event(task.id, task.context_id, name="d", data={"n": 7})
            await event_queue.enqueue_event(event)
            await updater.complete()
        else:
            if word == "who":
                message = MessageToDict(context.message)
                rest = f"{message['contextId']} {message.get('metadata')} {self.cancelled}"
            half = len(rest) // 2
            for piece, append in [(rest[:half], False), (rest[half:], True)]:
                event = new_text_artifact_update_event(
                    task.id, task.context_id, name="a", text=piece, append=append, artifact_id="a"
                )
                await event_queue.enqueue_event(event)
            await updater.complete()

    async def cancel(self, context, event_queue):
        self.cancelled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


legacy = "--legacy" in sys.argv
listener = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listener.getsockname()[1]}"
card = AgentCard(
    name="Tester",
    description="Does what it is told.",
    version="1",
    supported_interfaces=[
        AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version="0.3" if legacy else "1.0")
    ],
    capabilities=AgentCapabilities(streaming="--no-stream" not in sys.argv),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="x", name="X", description="x", tags=["x"])],
)
handler = DefaultRequestHandler(agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=card)
routes = create_agent_card_routes(card) + create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=legacy)
server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error"))


def end_with_input():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end_with_input, daemon=True).start()
print(url, flush=True)
server.run(sockets=[listener])
