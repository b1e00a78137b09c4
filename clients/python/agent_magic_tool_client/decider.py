"""Decides by a policy what waits for a human, with an API key that a human lets decide."""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass
from typing import Any, Iterator, Literal

from .api_types import Gate
from .connection import ApiError, Connection, Stream, id_of
from .policy import Policy, reject_all, verdict_of

#: The page alone decides these.
ONLY_ON_THE_PAGE = {
    "touch": "it needs a touch of the human's key, which only the page takes",
    "page": "it asks for a secret or a sign-in, which only the page takes",
}
#: The gate is no longer what was shown. If it still waits, it comes again.
MISSED = ("stale", "already-decided", "not-found")
#: In place of `asked_by`: all that waits. `None` is not that, as it may come from a setting that is missing.
ALL: Any = object()


@dataclass(frozen=True)
class Outcome:
    """What became of one gate."""

    gate: Gate
    #: `left` still waits for a human on the page; `missed` changed or was decided meanwhile, so nothing was done.
    result: Literal["approved", "denied", "left", "missed"]
    #: Why it was left or missed.
    reason: str = ""


class Decider:
    """Follows what waits, and decides it. While it runs, calls of other clients wait for it though no page is open.

    `asked_by` is the API key of one client: only what is asked with that is decided. If it is left out, everything is that
    waits, also what your programs in a terminal ask. Use it as a context manager to have it run in the background:

        with Decider(url, key, by_kind({"read": True})) as decider:
            ...
        print(decider.outcomes)

    If an error ended it in the background, leaving the context raises that.
    """

    def __init__(self, url: str, key: str, policy: Policy = reject_all, *, asked_by: str = ALL,
                 tls: ssl.SSLContext | None = None) -> None:
        own = id_of(key)
        self.connection, self.policy = Connection(url, key, tls), policy
        self.asked_by = None if asked_by is ALL else id_of(asked_by, "asked_by")
        if self.asked_by == own:
            raise ValueError("a key never approves what was asked with it; decide with another one")
        #: What was decided in the background.
        self.outcomes: list[Outcome] = []
        #: The error that ended it in the background, which is there as soon as it has ended.
        self.error: Exception | None = None
        self._closed = threading.Event()
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    def gates(self) -> list[Gate]:
        """What waits now."""
        return [gate for gate in self.connection.request("GET", "/api/v1/gates")["gates"] if self._is_ours(gate)]

    def follow(self) -> Iterator[Gate]:
        """What waits now, and then what comes, again when it shows something else. Ends with `close`.

        Raises `OSError` if the server is not there at first. If it goes away later, it is waited for.
        """
        was_there = False
        while not self._closed.is_set():
            try:
                stream = self._stream or self._open()
            except OSError:
                if not (was_there or self._closed.is_set()):
                    raise
                self._closed.wait(1)
                continue
            was_there = True
            for _, name, data in stream:
                if name == "error":
                    raise ApiError(403, data["error"])
                if name == "gate" and self._is_ours(data):
                    yield data
            self._stream = None
            self._closed.wait(1)

    def run(self) -> Iterator[Outcome]:
        """Decides what waits and what comes, as `follow` yields it. Ends with `close`."""
        for gate in self.follow():
            yield self.decide(gate)

    def decide(self, gate: Gate) -> Outcome:
        """Decides one gate by the policy, for exactly what it shows. A policy that fails or returns no verdict decides nothing."""
        identity, digest, needs = gate["id"], gate["digest"], dict(gate["needs"])
        is_own = gate.get("own", False)
        try:
            verdict = verdict_of(self.policy(gate))
        except Exception as error:
            return Outcome(gate, "left", f"the policy failed: {error!r}")
        if verdict is None:
            return Outcome(gate, "left", "the policy leaves it to a human")
        body: dict[str, Any] = {"decision": "approve" if verdict.approve else "deny", "digest": digest}
        if verdict.note is not None:
            body["note"] = verdict.note
        if verdict.approve:
            if is_own:
                return Outcome(gate, "left", "it was asked with this very key, which can only deny it")
            how = str(needs["how"])
            if how == "word":
                body["word"] = needs["word"]
            elif how == "answer" and verdict.answer is not None:
                body["answer"] = verdict.answer
            elif how != "click":
                return Outcome(gate, "left", ONLY_ON_THE_PAGE.get(how, "it asks a question, and the policy has no answer"))
        try:
            self.connection.request("POST", f"/api/v1/gate/{identity}", body)
        except ApiError as error:
            if error.code in MISSED:
                return Outcome(gate, "missed", error.message)
            return Outcome(gate, "left", str(error))
        except OSError as error:
            return Outcome(gate, "left", f"the server is not there: {error}")
        return Outcome(gate, "approved" if verdict.approve else "denied")

    def __enter__(self) -> Decider:
        self._open()
        self._thread = threading.Thread(target=self._work, name="agent-magic-tool decider", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None and self.error is not None:
            raise self.error

    def close(self) -> None:
        """Stops to follow. What was decided stays decided."""
        self._closed.set()
        if (stream := self._stream) is not None:
            stream.close()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()

    def _work(self) -> None:
        try:
            for outcome in self.run():
                self.outcomes.append(outcome)
        except Exception as error:
            self.error = error

    def _open(self) -> Stream:
        self._stream = self.connection.stream("/api/v1/gates/stream")
        if self._closed.is_set():
            self._stream.close()
        return self._stream

    def _is_ours(self, gate: Gate) -> bool:
        return self.asked_by is None or (gate["asked_by"].get("key") or "").rpartition(".")[2] == self.asked_by
