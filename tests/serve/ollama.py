"""Ollama's SDK for Python, unchanged.

python ollama.py URL KEY REQUESTS, with the requests and the output of openai.py; "api" is "chat", "generate", "models" or "embed".
"""

import json
import sys

# This file has the name of the package: its own folder must not be searched.
sys.path.pop(0)
import ollama  # noqa: E402

url, key, requests = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


def show(**line):
    print(json.dumps(line), flush=True)


def summary(text, last):
    assert last.total_duration >= last.prompt_eval_duration + last.eval_duration > 0, last
    usage = {"prompt_tokens": last.prompt_eval_count, "completion_tokens": last.eval_count}
    return {"text": text, "finish": last.done_reason, "usage": usage}


def called(answer):
    return [call.model_dump() for call in answer.message.tool_calls or []]


def chat(client, request, common):
    messages = request.get("messages") or [{"role": "user", "content": request["message"]}]
    if not request.get("stream"):
        answer = client.chat(messages=messages, **common)
        return summary(answer.message.content, answer) | {"calls": called(answer)}
    text, last, calls = "", None, []
    for last in client.chat(messages=messages, stream=True, **common):
        if last.message.content:
            show(piece=last.message.content)
        text += last.message.content or ""
        calls += called(last)
    assert last.done
    return summary(text, last) | {"calls": calls}


def generate(client, request, common):
    if not request.get("stream"):
        answer = client.generate(prompt=request["message"], **common)
        return summary(answer.response, answer)
    text, last = "", None
    for last in client.generate(prompt=request["message"], stream=True, **common):
        if last.response:
            show(piece=last.response)
        text += last.response
    assert last.done
    return summary(text, last)


def models(client, _request, _common):
    names = [model.model for model in client.list().models]
    shown = client.show(names[0])
    assert "completion" in shown.capabilities, shown
    assert client.ps().models[0].name == names[0]
    # An empty chat only loads the model.
    assert client.chat(model=names[0]).done_reason == "load"
    return {"names": names}


def embed(client, request, common):
    answer = client.embed(input=request["message"], **common)
    one = client.embeddings(prompt=request["message"][0], **common)
    assert list(one.embedding) == list(answer.embeddings[0]), "the older route says the same"
    vectors = [list(vector) for vector in answer.embeddings]
    return {"vectors": vectors, "usage": {"prompt_tokens": answer.prompt_eval_count}, "model": answer.model}


for request in requests:
    common = {"model": request.get("model", "llama3")} | request.get("more", {})
    headers = {"Authorization": f"Bearer {key}"} | request.get("headers", {})
    client = ollama.Client(host=url + request.get("path", ""), headers=headers)
    try:
        apis = {"chat": chat, "generate": generate, "models": models, "embed": embed}
        show(answer=apis[request["api"]](client, request, common))
    except ollama.ResponseError as error:
        show(error={"kind": "ResponseError", "status": error.status_code, "message": error.error})
    except Exception as error:
        show(error={"kind": type(error).__name__, "message": str(error)})
