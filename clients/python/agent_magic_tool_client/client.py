"""Asks questions, and follows what comes of them."""

from __future__ import annotations

import ssl
import time
import uuid
from dataclasses import dataclass
from typing import Any, Iterator
from urllib.parse import quote

from .api_types import SessionState, TurnOutcome
from .connection import ApiError, Connection
from .decider import Decider
from .policy import Policy, reject_all

#: How often a stream that broke off is opened again, one second apart, before that is an error.
RETRIES = 30


@dataclass(frozen=True)
class Event:
    """What happens in a session: `tok`, `task`, `gate`, `note`, `restart`, `done`; `data` is a `SessionEvent`."""

    name: str
    data: Any


class Client:
    """A program that asks, with an API key that has the scopes `ask` and `read`.

    Without a key, the server takes it for a program of its own user, which has all rights. Only loopback allows that.
    """

    def __init__(self, url: str = "http://127.0.0.1:8790", key: str | None = None, *,
                 tls: ssl.SSLContext | None = None) -> None:
        self.url, self.key, self.tls = url, key, tls
        self.connection = Connection(url, key, tls)

    def ask(self, message: str, *, session: str | int | None = None, **more: Any) -> Iterator[Event]:
        """Asks a question, and yields what happens until it is answered. The last event is `done`.

        `session` is an id of your choice, or the number of a session; `more` are other fields of `SubmitRequest`. Raises
        `ApiError` if the question ends without an answer.
        """
        body = {"message": message, **more, "wait": False}
        if session is not None:
            body["session"] = str(session)
        asked = self.connection.request("POST", "/api/v1/submit", body, {"Idempotency-Key": str(uuid.uuid4())})
        if "answer" in asked:
            # Commands alone are no question: what they print is answered at once.
            outcome = {name: value for name, value in asked.items() if name != "id"}
            return iter([Event("done", {"type": "done", **outcome})])
        if not asked.get("question"):
            raise ConnectionError("the server has neither an answer nor a question to follow")
        return self._follow(f"/api/v1/stream/{quote(asked['id'], safe='')}?question={asked['question']}")

    def _follow(self, path: str) -> Iterator[Event]:
        last_id, failures = None, 0
        while True:
            try:
                for event_id, name, data in self.connection.stream(path, {"Last-Event-ID": last_id} if last_id else {}):
                    last_id, failures = event_id or last_id, 0
                    error = data.get("error", {}) if name == "error" else {}
                    if error.get("code") == "no-executor":
                        break  # The server stops, and the turn goes on when it is back.
                    if name == "error":
                        raise ApiError(200, error)
                    yield Event(name, data)
                    if name == "done":
                        return
            except OSError:
                if failures >= RETRIES:
                    raise
            failures += 1
            if failures > RETRIES:
                raise ConnectionError("the stream of the session ended before the answer")
            time.sleep(1)

    def answer(self, message: str, *, session: str | int | None = None, **more: Any) -> TurnOutcome:
        """Asks a question, and returns its answer."""
        *_, last = self.ask(message, session=session, **more)
        return last.data

    def state(self, session: str | int) -> SessionState:
        """What a session is doing."""
        return self.connection.request("GET", f"/api/v1/session/{quote(str(session), safe='')}")

    def decided_by(self, key: str, policy: Policy = reject_all) -> Decider:
        """A decider with another key, for what is asked with the key of this client alone."""
        if not self.key:
            raise ValueError("a client without a key cannot be told from others; use a Decider, which decides for all")
        return Decider(self.url, key, policy, asked_by=self.key, tls=self.tls)
