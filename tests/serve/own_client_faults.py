"""Our own client for Python with wrong arguments, wrong verdicts, and a server that breaks off or is another one.

python own_client_faults.py prints `all good`.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agent_magic_tool_client import ApiError, Client, Decider, Verdict, approve_all, by_kind, by_subtool

SECRET = "S" * 43
ASK_KEY, DECIDE_KEY = f"amt_00000001_{SECRET}", f"amt_00000002_{SECRET}"
SUBMIT, GATES = "POST /api/v1/submit", "GET /api/v1/gates/stream"
ASKED = (202, "application/json", json.dumps({"session": 101, "id": "s 1", "question": "q1", "state": "working"}))
STREAM = "GET /api/v1/stream/s%201?question=q1"


def event(name, identity=None, **data):
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {name}\ndata: {json.dumps({'type': name, **data}, ensure_ascii=False)}\n\n"


def stream(*pieces):
    return 200, "text/event-stream", "".join(pieces)


def gate(identity):
    return {"id": identity, "digest": f"digest of {identity}", "subtool": "note", "needs": {"how": "click"},
            "asked_by": {"key": "asker.00000001"}, "danger": False, "effect": "once"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        path = f"{self.command} {self.path}"
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((path, self.headers.get("Last-Event-ID"), json.loads(body) if body else None))
        answers = self.server.answers[path]
        status, kind, text = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.close_connection = True
        data = text.encode()
        if kind == "text/event-stream":
            # It breaks off: the last chunk is missing.
            self.send_header("Transfer-Encoding", "chunked")
            data = b"%x\r\n%s\r\n" % (len(data), data)
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def server(answers):
    """A server that gives these answers, each path one after the other and the last one again."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.answers, running.asked = answers, []
        running.url = f"http://127.0.0.1:{running.server_port}"
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def error_of(kinds, action):
    try:
        action()
    except kinds as error:
        return str(error)
    raise AssertionError("nothing was raised")


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def a_client_goes_on_after_the_last_event():
    streams = [
        stream(event("tok", "1.1.1", text="a"), event("tok", "1.1.2", text="b\u2028"), 'id: 1.1.3\nevent: tok\ndata: {"te'),
        stream(event("error", "1.1.3", error={"code": "no-executor", "message": "it stops"})),
        stream(event("tok", "1.2.1", text="c"), "id: 1.2.2\nevent: tok\ndata: {broken\n\n", event("tok", "1.2.3", text="no")),
        stream(event("tok", "1.2.2", text="d"), event("done", "1.2.3.end", answer="abcd")),
    ]
    with server({SUBMIT: [ASKED], STREAM: streams}) as running:
        events = list(Client(running.url, ASK_KEY).ask("x", session=101))
        assert [one.data.get("text") or one.name for one in events] == ["a", "b\u2028", "c", "d", "done"], events
        (path, _, body), *followed = running.asked
        assert path == SUBMIT and body == {"message": "x", "session": "101", "wait": False}, body
        assert [one[:2] for one in followed] == [(STREAM, last) for last in (None, "1.1.2", "1.1.3", "1.2.1")], followed


def a_decider_goes_on_after_the_stream_broke_off():
    first, second = stream(event("gate", **gate("g1"))), stream(event("gate", **gate("g2")))
    decided = (200, "application/json", "{}")
    answers = {GATES: [first, second, stream()], "POST /api/v1/gate/g1": [decided], "POST /api/v1/gate/g2": [decided]}
    with server(answers) as running:
        with Client(running.url, ASK_KEY).decided_by(DECIDE_KEY, approve_all) as decider:
            until(lambda: len(decider.outcomes) == 2)
        posts = [(path, body["digest"]) for path, _, body in running.asked if body]
        assert posts == [(f"POST /api/v1/gate/{one}", f"digest of {one}") for one in ("g1", "g2")], posts
        assert [one.result for one in decider.outcomes] == ["approved", "approved"], decider.outcomes


def an_error_that_ended_a_decider_is_raised():
    ended = {GATES: [stream(event("error", error={"code": "needs-scope", "message": "taken back"}))]}
    with server(ended) as running:
        def decide():
            with Decider(running.url, DECIDE_KEY) as decider:
                until(lambda: decider.error)
        assert "taken back" in error_of(ApiError, decide)

        def fail():
            with Decider(running.url, DECIDE_KEY) as decider:
                until(lambda: decider.error)
                raise KeyError("its own")
        assert "its own" in error_of(KeyError, fail)


def what_commands_print_is_the_end():
    outcome = {"answer": "!help", "termination": "completed", "truncated": False, "session": 101, "model": "m", "usage": {}}
    with server({SUBMIT: [(200, "application/json", json.dumps({**outcome, "id": "s"}))]}) as running:
        [only] = Client(running.url).ask("!help")
        assert (only.name, only.data) == ("done", {"type": "done", **outcome}), only
        assert Client(running.url).answer("!help")["answer"] == "!help"


def what_is_no_key_is_refused():
    wrong = ["", "foo", "amt", "amt_00000001", "amt__" + SECRET, ASK_KEY[:-1], ASK_KEY + "\n", " " + ASK_KEY, ASK_KEY + "\r\nX: 1", 7]
    url = "http://127.0.0.1:1"
    for key in wrong:
        actions = [lambda: Client(url, key), lambda: Decider(url, key), lambda: Decider(url, DECIDE_KEY, asked_by=key),
                   lambda: Client(url, ASK_KEY).decided_by(key)]
        for action in actions:
            text = error_of(ValueError, action)
            assert "no whole API key" in text and "SSS" not in text and "foo" not in text, text
    assert "asked_by" in error_of(ValueError, lambda: Decider(url, DECIDE_KEY, asked_by=None))
    error_of(ValueError, lambda: Decider(url, None))
    assert "never approves" in error_of(ValueError, lambda: Decider(url, ASK_KEY, asked_by=ASK_KEY))
    for place in ("file:///etc/passwd", "127.0.0.1:8790", "ftp://127.0.0.1", "", "http://127.0.0.1:x"):
        error_of(ValueError, lambda: Client(place))
    for rules in (None, ["note"], "note", {"note": 1}):
        error_of(TypeError, lambda: by_subtool(rules))
        error_of(TypeError, lambda: by_kind(rules))


def what_is_no_verdict_is_left():
    circular = {}
    circular["self"] = circular
    verdicts = ["yes", 1, Verdict("no"), Verdict(1), Verdict(None), Verdict(True, note=7), Verdict(False, note=b"x"),
                Verdict(True, answer=[1]), Verdict(True, answer="x"), Verdict(True, answer={"a": object()}),
                Verdict(True, answer={"a": float("nan")}), Verdict(True, answer=circular), Verdict(True, answer={(1,): 1})]
    with server({}) as running:
        for verdict in verdicts:
            for how in ("click", "answer"):
                outcome = Decider(running.url, DECIDE_KEY, lambda _: verdict).decide({**gate("g"), "needs": {"how": how}})
                assert outcome.result == "left" and outcome.reason, (verdict, outcome)
        assert running.asked == []


def another_server_is_a_connection_error():
    page = (200, "text/html", "<html></html>")
    for other in (page, (200, "application/json", "[]"), (200, "application/json", "{}")):
        with server({SUBMIT: [other], GATES: [other], "GET /api/v1/session/s": [page], STREAM: [page]}) as running:
            error_of(ConnectionError, lambda: list(Client(running.url).ask("x")))
            error_of(ConnectionError, lambda: Client(running.url).state("s"))
            error_of(ConnectionError, lambda: list(Decider(running.url, DECIDE_KEY).run()))


def a_server_that_is_not_there_is_an_error_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        error_of(OSError, lambda: list(Client(url).ask("x")))
        error_of(OSError, lambda: list(Decider(url, DECIDE_KEY).run()))
        error_of(OSError, lambda: list(Decider(url, DECIDE_KEY).follow()))
        cases = [
            ([], DECIDE_KEY, 1, "the decider stopped"),
            ([], "foo", 2, "no whole API key"),
            ([], "", 2, "AGENT_MAGIC_TOOL_DECIDE_KEY"),
            (["--by-kind", "null"], DECIDE_KEY, 2, "no JSON object"),
            (["--by-subtool", "[]"], DECIDE_KEY, 2, "no JSON object"),
            (["--by-kind", "{"], DECIDE_KEY, 2, "not JSON"),
            (["--by-kind", '{"writes": true}'], DECIDE_KEY, 2, "writes"),
        ]
        for more, key, status, words in cases:
            line = [sys.executable, "-m", "agent_magic_tool_client", f"--url={url}", *more]
            ran = subprocess.run(line, env={**os.environ, "AGENT_MAGIC_TOOL_DECIDE_KEY": key}, capture_output=True, text=True)
            assert ran.returncode == status and words in ran.stderr and "Traceback" not in ran.stderr, (more, ran)


a_client_goes_on_after_the_last_event()
a_decider_goes_on_after_the_stream_broke_off()
an_error_that_ended_a_decider_is_raised()
what_commands_print_is_the_end()
what_is_no_key_is_refused()
what_is_no_verdict_is_left()
another_server_is_a_connection_error()
a_server_that_is_not_there_is_an_error_at_once()
print("all good")
