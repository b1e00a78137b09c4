"""Ask `agent-magic-tool serve`, and decide by a policy what waits for a human."""

from .client import Client, Event
from .connection import ApiError
from .decider import Decider, Outcome
from .policy import Policy, Verdict, approve_all, by_kind, by_subtool, kind_of, reject_all

__version__ = "0.1.0"
__all__ = [
    "ApiError", "Client", "Decider", "Event", "Outcome", "Policy", "Verdict",
    "approve_all", "by_kind", "by_subtool", "kind_of", "reject_all",
]
