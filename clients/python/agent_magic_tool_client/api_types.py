"""The types of the HTTP API. Made by clients/generate.py from the OpenAPI document; change that, not this."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict, Union


class Health(TypedDict):
    r"""Whether the server works."""

    status: str
    version: str


WhenBusy = Union[Literal["interrupt"], Literal["queue"], Literal["cancel"]]


class SubmitLimits(TypedDict):
    r"""Limits of one question. They only lower those of the configuration."""

    steps: NotRequired[int | None]
    tokens: NotRequired[int | None]
    cost: NotRequired[float | None]
    calls: NotRequired[int | None]
    deadline: NotRequired[float | None]


class SubmitRequest(TypedDict):
    r"""A question for a session."""

    message: str
    session: NotRequired[str | None]
    model: NotRequired[str | None]
    wait: NotRequired[bool]
    timeout: NotRequired[float | None]
    commands: NotRequired[bool]
    when_busy: NotRequired[WhenBusy]
    limits: NotRequired[SubmitLimits]


class TurnUsage(TypedDict):
    r"""What a turn used."""

    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: float


class SubmitAnswer(TypedDict):
    r"""The answer to a question."""

    session: int
    id: str
    answer: str
    termination: str
    truncated: bool
    model: str
    usage: TurnUsage


class SubmitPending(TypedDict):
    r"""A question whose answer is not there yet: read the session's state, or follow its stream."""

    session: int
    id: str
    question: NotRequired[str | None]
    state: str


class TaskNews(TypedDict):
    r"""News about a task of the session."""

    id: str
    subtool: str
    state: str
    preview: NotRequired[str | None]


class GateNews(TypedDict):
    r"""A task that waits for a human. Only the page, or a client whose API key may decide, can answer it."""

    id: str
    subtool: str
    message: str


class TurnOutcome(TypedDict):
    r"""How a turn ended."""

    answer: str
    termination: str
    truncated: bool
    session: int
    model: str
    usage: TurnUsage


class ErrorShape(TypedDict):
    r"""What is wrong, and how to go on."""

    code: str
    message: str
    hint: NotRequired[str | None]
    details: NotRequired[dict[str, Any] | None]


class SessionEventText(TypedDict):
    r"""A piece of the answer."""

    type: Literal["text"]
    text: str


class SessionEventRestart(TypedDict):
    r"""What came so far of this turn's answer is void: the request is made again."""

    type: Literal["restart"]


class SessionEventTask(TaskNews):
    r"""A task was started, moved on or ended."""

    type: Literal["task"]


class SessionEventGate(GateNews):
    r"""A task waits for a human."""

    type: Literal["gate"]


class SessionEventNote(TypedDict):
    r"""Something that the user should know, in words."""

    type: Literal["note"]
    text: str


class SessionEventDone(TurnOutcome):
    r"""The turn ended; no event of this turn follows."""

    type: Literal["done"]


class SessionEventError(TypedDict):
    r"""The turn ended without an answer; no event of this turn follows."""

    type: Literal["error"]
    error: ErrorShape


SessionEvent = Union[SessionEventText, SessionEventRestart, SessionEventTask, SessionEventGate, SessionEventNote, SessionEventDone, SessionEventError]


class SessionInfo(TypedDict):
    r"""A session in a list."""

    number: int
    client: NotRequired[str | None]
    key: NotRequired[str | None]
    began_at: str
    is_busy: bool


class SessionList(TypedDict):
    r"""The sessions of a client."""

    sessions: list[SessionInfo]


class QuestionState(TypedDict):
    r"""A question, and what became of it."""

    question: str
    state: str
    answer: NotRequired[str | None]
    termination: NotRequired[str | None]
    truncated: bool
    usage: NotRequired[TurnUsage | None]
    error: NotRequired[ErrorShape | None]


class SessionState(TypedDict):
    r"""What a session is doing, and its last answer."""

    session: int
    state: str
    model: str
    answer: NotRequired[str | None]
    open: list[TaskNews]
    questions: list[QuestionState]


class SessionChange(TypedDict):
    r"""What was done to a session."""

    session: int
    state: str


class PlainText(TypedDict):
    r"""Text that hides nothing."""

    text: str
    hidden: list[str]
    notes: list[str]


GateForm = dict[str, Any]


class GateNeedClick(TypedDict):
    r"""A yes."""

    how: Literal["click"]


class GateNeedWord(TypedDict):
    r"""A yes, and this word, which a human types."""

    how: Literal["word"]
    word: str


class GateNeedAnswer(TypedDict):
    r"""An answer that fits this form: a JSON Schema of an object. Its words hide nothing, and an option whose title is not
its value shows both; values and names are as they are sent."""

    how: Literal["answer"]
    question: PlainText
    form: GateForm


class GateNeedTouch(TypedDict):
    r"""A touch of the approver's key, which only the page can ask for."""

    how: Literal["touch"]


class GateNeedPage(TypedDict):
    r"""The page: it asks for a secret, or for a sign-in."""

    how: Literal["page"]


GateNeed = Union[GateNeedClick, GateNeedWord, GateNeedAnswer, GateNeedTouch, GateNeedPage]


class GateCaller(TypedDict):
    r"""Who asks. The folder and the session are its own claims."""

    user: str
    uid: int
    folder: str
    session: NotRequired[str | None]
    client: NotRequired[str | None]
    key: NotRequired[str | None]
    at: str


class GateField(TypedDict):
    r"""A field of the input."""

    name: str
    value: PlainText
    decoded: NotRequired[PlainText | None]
    replaces: NotRequired[PlainText | None]
    diff: NotRequired[str | None]
    is_default: bool


class GateFile(TypedDict):
    r"""A file that is executed."""

    role: str
    path: str
    owner: str
    bytes: NotRequired[int | None]
    sha256: NotRequired[str | None]
    warning: NotRequired[str | None]


class GateCascade(TypedDict):
    r"""The rows of one table that foreign keys change with a change in a database."""

    table: str
    words: str
    diff: NotRequired[str | None]
    rows: NotRequired[PlainText | None]


class GateChange(TypedDict):
    r"""A change in a database, as it was tried."""

    rows_affected: int
    replaced: NotRequired[int | None]
    shown: int
    diff: NotRequired[str | None]
    rows: NotRequired[PlainText | None]
    set_by_database: NotRequired[list[PlainText]]
    sets_off: NotRequired[list[str]]
    cascades: NotRequired[list[GateCascade]]


class GateDryRun(TypedDict):
    r"""What a dry run of the task showed."""

    shown: NotRequired[PlainText | None]
    is_cut: NotRequired[bool]
    why_not: NotRequired[str | None]


class Gate(TypedDict):
    r"""One task that waits for a human, as its card shows it."""

    id: str
    digest: str
    subtool: str
    description: str
    summary: str
    needs: GateNeed
    effect: str
    effect_words: str
    danger: bool
    own: NotRequired[bool]
    why: str
    reason: NotRequired[PlainText | None]
    asked_by: GateCaller
    starts: NotRequired[str | None]
    expires_at: str
    fields: list[GateField]
    would_send: PlainText
    touches: list[str]
    runs: list[GateFile]
    reads: NotRequired[list[GateFile]]
    change: NotRequired[GateChange | None]
    would_change: NotRequired[GateDryRun | None]
    unknown: NotRequired[str | None]
    marks: list[str]


class GateList(TypedDict):
    r"""What waits for a human."""

    gates: list[Gate]
    more: int


class GateEventGate(Gate):
    r"""This waits, or shows something else than before."""

    type: Literal["gate"]


class GateEventGone(TypedDict):
    r"""It no longer waits: it was decided, or its task has ended."""

    type: Literal["gone"]
    id: str


class GateEventError(TypedDict):
    r"""The stream ends: the key may no longer decide."""

    type: Literal["error"]
    error: ErrorShape


GateEvent = Union[GateEventGate, GateEventGone, GateEventError]


GateVerdict = Literal["approve", "deny"]


class GateDecision(TypedDict):
    r"""A decision on a task."""

    decision: GateVerdict
    digest: str
    word: NotRequired[str | None]
    note: NotRequired[str | None]
    answer: NotRequired[dict[str, Any] | None]


class DecisionAnswer(TypedDict):
    r"""The state of a task after a decision."""

    id: str
    state: str


class ErrorAnswer(TypedDict):
    r"""An error."""

    error: ErrorShape
