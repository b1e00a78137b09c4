"""Anthropic's SDK for Python, unchanged.

python anthropic.py URL KEY REQUESTS, with the requests and the output of openai.py; "api" is "messages", "count" or "models".
The answer also has "calls": the blocks that call tools of the client, and "content", which can be sent back.
"""

import json
import sys

# This file has the name of the package: its own folder must not be searched.
sys.path.pop(0)
import anthropic  # noqa: E402
import pydantic  # noqa: E402

url, key, requests = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
client = anthropic.Anthropic(base_url=url, api_key=key)


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


def messages(request, common):
    given = request.get("messages") or [{"role": "user", "content": request["message"]}]
    common = {"max_tokens": 1024, "messages": given} | common
    if request.get("stream"):
        kinds = []
        # The helper builds the message from the events, and fails if they are out of order.
        with client.messages.stream(**common) as stream:
            for event in stream:
                kinds.append(event.type)
                if event.type == "text":
                    show(piece=event.text)
            answer = check(stream.get_final_message())
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
    else:
        answer = check(client.messages.create(**common))
    blocks = [block.to_dict(exclude_unset=False) for block in answer.content]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [block for block in blocks if block["type"] == "tool_use"]
    content = [{name: block[name] for name in ("type", "text", "id", "name", "input") if name in block} for block in blocks]
    usage = answer.usage.to_dict()
    return {"text": text, "finish": answer.stop_reason, "usage": usage, "calls": calls, "content": content}


def count(request, common):
    given = request.get("messages") or [{"role": "user", "content": request["message"]}]
    return {"tokens": check(client.messages.count_tokens(messages=given, **common)).input_tokens}


def models(_request, _common):
    names = [check(model).id for model in client.models.list()]
    assert check(client.models.retrieve(names[0])).id == names[0]
    return {"names": names}


for request in requests:
    common = {"model": request.get("model", "claude-opus-4"), "extra_headers": request.get("headers", {})}
    common |= request.get("more", {})
    api = {"messages": messages, "count": count, "models": models}[request["api"]]
    try:
        show(answer=api(request, common))
    except anthropic.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        assert body.get("type") == "error" and body.get("request_id") == error.request_id, (body, error.request_id)
        show(error={"kind": type(error).__name__, "status": error.status_code} | body["error"])
    except Exception as error:
        show(error={"kind": type(error).__name__, "message": str(error)})
