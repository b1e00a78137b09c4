"""Policies: what to do about a gate, which is a task that waits for a human.

A policy is any function of a gate. It returns `True` to approve, `False` to deny, `None` to leave it to a human on the
page, or a `Verdict`, which has room for a note and an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Callable, Literal, Union

from .api_types import Gate

Kind = Literal["read", "write", "destructive"]


@dataclass(frozen=True)
class Verdict:
    """A decision with more to say than yes or no."""

    approve: bool
    #: For the agent.
    note: str | None = None
    #: The fields of the answer, if the gate asks a question.
    answer: Mapping[str, Any] | None = None


Policy = Callable[[Gate], Union[bool, Verdict, None]]


def verdict_of(found: object) -> Verdict | None:
    """The verdict in what a policy returned, ready to be sent. Raises `TypeError` or `ValueError` if it is no verdict."""
    if found is None:
        return None
    verdict = found if isinstance(found, Verdict) else Verdict(found)  # type: ignore[arg-type]
    if not isinstance(verdict.approve, bool):
        raise TypeError(f"it returned a value of type {type(verdict.approve).__name__}, which is neither True nor False")
    if not isinstance(verdict.note, (str, type(None))):
        raise TypeError(f"its note is of type {type(verdict.note).__name__}, and no text")
    if verdict.answer is None:
        return verdict
    if not isinstance(verdict.answer, Mapping):
        raise TypeError(f"its answer is of type {type(verdict.answer).__name__}, and no mapping")
    return replace(verdict, answer=json.loads(json.dumps(dict(verdict.answer), allow_nan=False)))


def reject_all(gate: Gate) -> bool:
    """Denies everything."""
    return False


def approve_all(gate: Gate) -> bool:
    """Approves everything that a key may approve, also what destroys something."""
    return True


def by_subtool(rules: Mapping[str, bool]) -> Policy:
    """Decides by the name of the subtool, which may have `*`: `by_subtool({"note_*": True, "note_delete": False})`.

    A name counts before patterns; if several patterns match, one `False` denies. What no rule names is denied.
    """
    check_rules(rules)

    def policy(gate: Gate) -> bool:
        name = gate["subtool"]
        if name in rules:
            return rules[name]
        matching = [allowed for pattern, allowed in rules.items() if matches(pattern, name)]
        return bool(matching) and all(matching)

    return policy


def by_kind(rules: Mapping[Kind, bool]) -> Policy:
    """Decides by what a call changes: `by_kind({"read": True, "write": False})`. A kind that is not named is denied."""
    check_rules(rules)
    if unknown := set(rules) - {"read", "write", "destructive"}:
        raise ValueError(f"there are the kinds read, write and destructive, not {', '.join(sorted(unknown))}")
    return lambda gate: rules.get(kind_of(gate), False)


def kind_of(gate: Gate) -> Kind:
    """`read` changes nothing, `destructive` destroys something, all else is a `write`."""
    if gate["danger"] is not False:
        return "destructive"
    return "read" if gate["effect"] == "read" else "write"


def matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def check_rules(rules: Mapping[Any, bool]) -> None:
    """Refuses `"no"` and the like, which would count as a yes."""
    if not isinstance(rules, Mapping):
        raise TypeError(f"rules are a mapping of names to True or False, not of type {type(rules).__name__}")
    if wrong := [name for name, allowed in rules.items() if not isinstance(allowed, bool)]:
        raise TypeError(f"a rule is True or False: {', '.join(map(str, wrong))}")
