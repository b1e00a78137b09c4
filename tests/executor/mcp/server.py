"""A small MCP server over standard input and output that misbehaves on request, without any SDK.

Each tool is one way to misbehave. `counter`, an environment variable, names a file to which each call of a tool adds a
line. With `MODERN=1` it speaks 2026-07-28, otherwise 2025-06-18.
"""

import json
import os
import subprocess
import sys
import threading
import time

MODERN = os.environ.get("MODERN") == "1"
TOOLS = ["echo", "crash", "silent", "flood", "noise", "huge", "change", "twice", "stray_id", "not_utf8", "fork", "fail",
         "refuse", "late", "ask", "task", "slow_ask", "unstructured", "environment", "structured", "show_file"]
changed = False
lock = threading.Lock()
held = []


def write(text):
    with lock:
        sys.stdout.write(text)
        sys.stdout.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False) + "\n")


def answer(request, result):
    if MODERN:
        result = {"resultType": "complete", **result}
    send({"id": request["id"], "result": result})


def text(said):
    return {"content": [{"type": "text", "text": said}]}


def tools():
    listed = []
    for name in TOOLS:
        description = "Does something else now." if changed and name == "echo" else f"Does {name}."
        listed.append({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {
            "message": {"type": "string"}}}})
    page = {"tools": listed}
    if MODERN:
        page.update({"ttlMs": 0, "cacheScope": "private"})
    return page


def count(name):
    if "counter" in os.environ:
        with open(os.environ["counter"], "a", encoding="utf-8") as file:
            file.write(name + "\n")


tasks_folder = os.environ.get("tasks")


def task(request):
    """A task that is done when the file of its name exists in the folder `tasks`, so it outlives this process."""
    name = request["params"].get("taskId") or f"task-{os.getpid()}"
    done = os.path.exists(os.path.join(tasks_folder, "done"))
    state = {"taskId": name, "status": "completed" if done else "working", "createdAt": "2026-11-22T00:00:00Z",
             "lastUpdatedAt": "2026-11-22T00:00:00Z", "ttlMs": None, "pollIntervalMs": 100}
    return state, done


def call(request):
    global changed
    name = request["params"]["name"]
    arguments = request["params"].get("arguments") or {}
    message = arguments.get("message", "")
    responses = request["params"].get("inputResponses")
    if responses is None:
        count(name)
    if name == "echo":
        answer(request, text(f"Echo: {message}"))
    elif name == "crash":
        sys.stderr.write("out of cheese\n")
        sys.stderr.flush()
        os._exit(7)
    elif name == "silent":
        held.append(request)
    elif name == "late":
        held.append(request)
        threading.Timer(0.3, lambda: answer(request, text("late"))).start()
    elif name == "flood":
        sys.stderr.write("x" * 5_000_000)
        sys.stderr.flush()
        answer(request, text("flooded"))
    elif name == "noise":
        write("Listening on port 80\n\n{half\n")
        answer(request, text("after noise"))
    elif name == "huge":
        answer(request, text("x" * 50_000_000))
    elif name == "change":
        changed = True
        send({"method": "notifications/tools/list_changed"})
        answer(request, text("changed"))
    elif name == "twice":
        answer(request, text("first"))
        answer(request, text("second"))
    elif name == "stray_id":
        send({"id": 4711, "result": text("to nobody")})
        send({"id": "x", "result": text("to nobody")})
        answer(request, text("to you"))
    elif name == "not_utf8":
        with lock:
            head = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": text("AB")}).encode()
            sys.stdout.buffer.write(head.replace(b"AB", b"A\xffB") + b"\n")
            sys.stdout.buffer.flush()
    elif name == "fork":
        child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True)
        answer(request, text(str(child.pid)))
    elif name == "fail":
        answer(request, {**text("no such thing"), "isError": True})
    elif name == "refuse":
        send({"id": request["id"], "error": {"code": -32602, "message": "the message is missing",
                                             "data": {"field": "message"}}})
    elif name == "environment":
        answer(request, text("\n".join(sorted(f"{key}={value}" for key, value in os.environ.items()))))
    elif name == "show_file":
        with open(arguments["path"], encoding="utf-8") as file:
            answer(request, text(file.read()))
    elif name == "structured":
        answer(request, {**text("{}"), "structuredContent": {"n": 9007199254740993}})
    elif name == "unstructured":
        answer(request, {})
    elif name in ("ask", "slow_ask"):
        schema = {"type": "object", "properties": {"color": {"type": "string", "title": "Color"}}, "required": ["color"]}
        question = {"mode": "form", "message": "Which color?", "requestedSchema": schema}
        if MODERN and responses is None:
            send({"id": request["id"], "result": {"resultType": "input_required", "requestState": "opaque",
                  "inputRequests": {"color": {"method": "elicitation/create", "params": question}}}})
        elif MODERN:
            kept = request["params"].get("requestState")
            answer(request, text(f"{json.dumps(responses['color'], sort_keys=True)} {kept}"))
        else:
            send({"id": 900, "method": "elicitation/create", "params": question})
            held.append(request)
    elif name == "task":
        state, _ = task(request)
        send({"id": request["id"], "result": {"resultType": "task", **state}})


def handle(message):
    method = message.get("method")
    if method == "initialize" and not MODERN:
        answer(message, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}},
                         "serverInfo": {"name": "crooked", "version": "1"}, "instructions": "Be careful."})
    elif method == "server/discover" and MODERN:
        answer(message, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {},
               "extensions": {"io.modelcontextprotocol/tasks": {}}}, "ttlMs": 0, "cacheScope": "private",
               "serverInfo": {"name": "crooked", "version": "1"}})
    elif method == "tools/list":
        answer(message, tools())
    elif method == "tools/call":
        call(message)
    elif method == "tasks/get":
        state, done = task(message)
        if done:
            state["result"] = text("the task is done")
        answer(message, state)
    elif method == "tasks/cancel":
        count("cancelled")
        answer(message, {})
    elif method == "notifications/cancelled":
        count("cancelled")
    elif method is None and message.get("id") == 900 and held:
        answer(held.pop(), text(json.dumps(message.get("result"), sort_keys=True)))
    elif "id" in message and method is not None:
        send({"id": message["id"], "error": {"code": -32601, "message": f"no method {method}"}})


if os.environ.get("STUBBORN") == "1":
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ.get("HANGS") == "1":
    time.sleep(1000)
for line in sys.stdin:
    handle(json.loads(line))
if os.environ.get("STUBBORN") == "1":
    time.sleep(1000)
