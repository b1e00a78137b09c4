"""Frameworks for agents in Python, unchanged: LangChain, pydantic-ai and OpenAI's Agents SDK.

python frameworks.py URL KEY REQUESTS

REQUESTS is a JSON list of {"framework", "protocol": "chat" | "responses" | "anthropic", "do", "stream", "message"}; "do" is a method
of the classes below, and "turns" has "messages" instead: for each of several conversations its questions. Each piece of a stream
is printed as {"piece"}, each answer as {"answer"} with the cities for which the client's tool was called in "performed", each
error as {"error"}.
"""

import asyncio
import base64
import json
import os
import sys

# Nothing is reported to the makers of the frameworks.
os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
# Files beside this one have the names of packages.
sys.path.pop(0)
import agents  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
import pydantic_ai  # noqa: E402
from langchain.agents import create_agent  # noqa: E402
from langchain_anthropic import ChatAnthropic  # noqa: E402
from langchain_core.messages import HumanMessage  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

MODEL = "agent-magic-tool"
SYSTEM = "You are a pirate."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

url, key, requests = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
# One loop for all requests: a client stays with the loop in which it was first used.
loop = asyncio.Runner()
performed = []


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


def weather(city: str) -> str:
    """Says the weather of a city."""
    performed.append(city)
    return f"sunny in {city}"


def show(**line):
    print(json.dumps(line), flush=True)


def piece(text):
    if text:
        show(piece=text)
    return text


class LangChain:
    def __init__(self, protocol):
        if protocol == "anthropic":
            self.model = ChatAnthropic(model=MODEL, base_url=url, api_key=key)
        else:
            self.model = ChatOpenAI(model=MODEL, base_url=url + "/v1", api_key=key, use_responses_api=protocol == "responses")

    def say(self, messages, stream=False):
        if not stream:
            return self.model.invoke(messages)
        whole = None
        for chunk in self.model.stream(messages):
            piece(chunk.text)
            whole = chunk if whole is None else whole + chunk
        return whole

    def ask(self, request):
        return self.say([HumanMessage(request["message"])], request.get("stream")).text

    def tool(self, request):
        agent = create_agent(self.model, tools=[weather], system_prompt=SYSTEM)
        given = {"messages": [HumanMessage(request["message"])]}
        if not request.get("stream"):
            return agent.invoke(given)["messages"][-1].text
        texts = {}
        for chunk, _ in agent.stream(given, stream_mode="messages"):
            if chunk.type == "AIMessageChunk":
                texts[chunk.id] = texts.get(chunk.id, "") + piece(chunk.text)
        return list(texts.values())[-1]

    def form(self, request):
        return self.model.with_structured_output(Weather, method="json_schema").invoke(request["message"]).model_dump()

    def call(self, request):
        return self.model.with_structured_output(Weather, method="function_calling").invoke(request["message"]).model_dump()

    def image(self, request):
        picture = {"type": "image", "base64": PNG, "mime_type": "image/png"}
        return self.say([HumanMessage([{"type": "text", "text": request["message"]}, picture])], request.get("stream")).text

    def turn(self, said, question):
        said = [*(said or []), HumanMessage(question)]
        answer = self.say(said)
        return [*said, answer], answer.text


class PydanticAi:
    def __init__(self, protocol):
        if protocol == "anthropic":
            # The name tells it nothing about the model.
            able = {"supports_json_schema_output": True}
            self.model = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=url, api_key=key), profile=able)
        else:
            kind = OpenAIResponsesModel if protocol == "responses" else OpenAIChatModel
            self.model = kind(MODEL, provider=OpenAIProvider(base_url=url + "/v1", api_key=key))

    def run(self, prompt, stream=False, history=None, **agent):
        async def running():
            of_model = pydantic_ai.Agent(self.model, **agent)
            if not stream:
                return await of_model.run(prompt, message_history=history)
            async with of_model.run_stream(prompt) as result:
                return "".join([piece(text) async for text in result.stream_text(delta=True, debounce_by=None)])

        result = loop.run(running())
        return result if stream or history is not None else result.output

    def ask(self, request):
        return self.run(request["message"], request.get("stream"))

    def tool(self, request):
        return self.run(request["message"], request.get("stream"), tools=[weather], instructions=SYSTEM)

    def form(self, request):
        return self.run(request["message"], output_type=pydantic_ai.NativeOutput(Weather)).model_dump()

    def call(self, request):
        return self.run(request["message"], output_type=Weather).model_dump()

    def image(self, request):
        picture = pydantic_ai.BinaryContent(base64.b64decode(PNG), media_type="image/png")
        return self.run([request["message"], picture], request.get("stream"))

    def turn(self, said, question):
        result = self.run(question, history=said or [])
        return result.all_messages(), result.output


class OpenAiAgents:
    def __init__(self, protocol):
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key=key)
        kind = agents.OpenAIResponsesModel if protocol == "responses" else agents.OpenAIChatCompletionsModel
        self.model = kind(MODEL, openai_client=client)

    def run(self, given, stream=False, **agent):
        async def running():
            of_model = agents.Agent(name="Pirate", model=self.model, **agent)
            if not stream:
                return await agents.Runner.run(of_model, given)
            result = agents.Runner.run_streamed(of_model, given)
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    piece(event.data.delta)
            return result

        return loop.run(running())

    def ask(self, request):
        return self.run(request["message"], request.get("stream")).final_output

    def tool(self, request):
        tools = [agents.function_tool(weather)]
        return self.run(request["message"], request.get("stream"), tools=tools, instructions=SYSTEM).final_output

    def form(self, request):
        return self.run(request["message"], output_type=Weather).final_output.model_dump()

    def image(self, request):
        picture = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"}
        content = [{"type": "input_text", "text": request["message"]}, picture]
        return self.run([{"role": "user", "content": content}], request.get("stream")).final_output

    def turn(self, said, question):
        result = self.run([*(said or []), {"role": "user", "content": question}])
        return result.to_input_list(), result.final_output


def turns(framework, request):
    """Several conversations at the same time: each asks its next question when the others have asked theirs."""
    said = [None for _ in request["messages"]]
    texts = [[] for _ in request["messages"]]
    for questions in zip(*request["messages"], strict=True):
        for number, question in enumerate(questions):
            said[number], text = framework.turn(said[number], question)
            texts[number].append(text)
    return texts


FRAMEWORKS = {"langchain": LangChain, "pydantic-ai": PydanticAi, "openai-agents": OpenAiAgents}

for request in requests:
    performed.clear()
    try:
        framework = FRAMEWORKS[request["framework"]](request["protocol"])
        answer = turns(framework, request) if request["do"] == "turns" else getattr(framework, request["do"])(request)
        show(answer=answer, performed=performed)
    except Exception as error:
        show(error={"kind": type(error).__name__, "message": str(error)})
