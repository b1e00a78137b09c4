"""OpenAI's SDK for Python, unchanged.

python openai.py URL KEY REQUESTS

REQUESTS is a JSON list of {"api": "chat" | "responses" | "completions" | "models" | "chain" | "embed", "stream", "message" | "messages", "model",
"headers", "more"}. Each piece of a stream is printed as {"piece"}, each answer as {"answer"}, each error as {"error"}.
Every object is checked against the SDK's own types, also for fields that those do not have.
"""

import json
import sys

# This file has the name of the package: its own folder must not be searched.
sys.path.pop(0)
import openai  # noqa: E402
import pydantic  # noqa: E402

url, key, requests = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
client = openai.OpenAI(base_url=url + "/v1", api_key=key)


def show(**line):
    print(json.dumps(line), flush=True)


def check(model):
    """Fails if a field is missing, is of another type, or is not known to the SDK."""
    type(model).model_validate(model.to_dict())
    assert not model.model_extra, (type(model).__name__, model.model_extra)
    for value in dict(model).values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, pydantic.BaseModel):
                check(one)
    return model


def chat(request, common):
    messages = request.get("messages") or [{"role": "user", "content": request["message"]}]
    if not request.get("stream"):
        answer = check(client.chat.completions.create(messages=messages, **common))
        choice = answer.choices[0]
        calls = [call.to_dict() for call in choice.message.tool_calls or []]
        return {"text": choice.message.content, "finish": choice.finish_reason, "usage": answer.usage.to_dict(), "calls": calls}
    common["stream_options"] = {"include_usage": True}
    text, finish, usage, roles, calls = "", None, None, [], []
    for chunk in client.chat.completions.create(messages=messages, stream=True, **common):
        check(chunk)
        if not chunk.choices:
            usage = chunk.usage.to_dict()
            continue
        delta = chunk.choices[0].delta
        if delta.role:
            roles.append(delta.role)
        if delta.content:
            show(piece=delta.content)
            text += delta.content
        for call in delta.tool_calls or []:
            assert call.index == len(calls), call
            calls.append(call.to_dict())
        finish = chunk.choices[0].finish_reason or finish
    assert roles == ["assistant"], roles
    return {"text": text, "finish": finish, "usage": usage, "calls": calls}


def responses(request, common):
    given = request.get("messages") or request["message"]
    if not request.get("stream"):
        answer = check(client.responses.create(input=given, **common))
    else:
        # The helper builds the response from the events, and fails if they are out of order.
        with client.responses.stream(input=given, **common) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    show(piece=event.delta)
            answer = stream.get_final_response()
    usage = answer.usage.to_dict()
    calls = [item.to_dict() for item in answer.output if item.type == "function_call"]
    return {"text": answer.output_text, "finish": answer.status, "usage": usage, "id": answer.id, "calls": calls}


def completions(request, common):
    if not request.get("stream"):
        answer = check(client.completions.create(prompt=request["message"], **common))
        choice = answer.choices[0]
        return {"text": choice.text, "finish": choice.finish_reason, "usage": answer.usage.to_dict()}
    common["stream_options"] = {"include_usage": True}
    text, finish, usage = "", None, None
    for chunk in client.completions.create(prompt=request["message"], stream=True, **common):
        # Not checked: the SDK's type demands a reason in every chunk, and OpenAI's own server sends null.
        if not chunk.choices:
            usage = chunk.usage.to_dict()
            continue
        if chunk.choices[0].text:
            show(piece=chunk.choices[0].text)
            text += chunk.choices[0].text
        finish = chunk.choices[0].finish_reason or finish
    return {"text": text, "finish": finish, "usage": usage}


def models(_request, _common):
    names = [check(model).id for model in client.models.list()]
    assert check(client.models.retrieve(names[0])).id == names[0]
    return {"names": names}


def embed(request, common):
    # The SDK asks for base64, and decodes it.
    answer = check(client.embeddings.create(input=request["message"], **common))
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return {"vectors": [one.embedding for one in answer.data], "usage": answer.usage.to_dict(), "model": answer.model}


def chain(request, common):
    """Asks, goes on from the response, reads both again, and deletes the first."""
    first = client.responses.create(input=request["message"], **common)
    second = client.responses.create(input=request["then"], previous_response_id=first.id, **common)
    for response in (first, second):
        assert check(client.responses.retrieve(response.id)).to_dict() == response.to_dict(), response
    client.responses.delete(first.id)
    try:
        client.responses.retrieve(first.id)
    except openai.NotFoundError:
        return {"text": second.output_text, "previous": second.previous_response_id == first.id, "id": second.id}


for request in requests:
    common = {"model": request.get("model", "gpt-5"), "extra_headers": request.get("headers", {})}
    common |= request.get("more", {})
    apis = {"chat": chat, "responses": responses, "completions": completions, "models": models, "chain": chain, "embed": embed}
    api = apis[request["api"]]
    try:
        show(answer=api(request, common))
    except openai.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        show(error={"kind": type(error).__name__, "status": error.status_code} | body)
    except Exception as error:
        show(error={"kind": type(error).__name__, "message": str(error)})
