"""What LLM actions and chats are answered by: the prompts that it is sent, and the port of the model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.declare.actions import Action
from pipeline.declare.classes import Declaration
from pipeline.declare.fence import MAX_INPUT, disclose, holdable, splice
from pipeline.declare.keys import Evidence
from pipeline.errors import InvalidRequest
from pipeline.retrieval.assistants import Counted

Prompt = Sequence[Mapping[str, str]]
"""Messages with `role` and `content`."""


class ChatModel(Protocol):
    """Answers prompts."""

    def stream(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[str | Counted[str], None]:
        """Yield the answer piece by piece, by the deadline; a piece may bring tokens that were paid for, not counted before.

        Raises:
            ModelError: the model did not answer, or broke off; what came before that was yielded.
            ConfigurationError: the key is refused, or the model is not known.
            DeadlineExceeded: too little time is left to ask.
        """
        ...


def prompt_of(
    declaration: Declaration,
    action: Action,
    evidence: Evidence | None,
    inputs: Mapping[str, object],
    boundary: str,
) -> Prompt:
    """Return the messages of an LLM action: what its class is, then the action, what was retrieved, and the inputs.

    Raises:
        InvalidRequest: an input is too long.
    """
    spec = declaration.role or declaration.agent
    system = _system(spec.description if spec else "", evidence, boundary)
    user = splice(action.description, evidence, inputs, boundary)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def chat_prompt_of(
    declaration: Declaration, history: Prompt, message: str, evidence: Evidence | None, boundary: str
) -> Prompt:
    """Return the messages of a turn: what the agent is, the turns before, and the message under what was retrieved for it.

    Turns are as they were said, but for what documents lose too; they are no markup.

    Raises:
        InvalidRequest: an earlier turn is neither the user's nor the assistant's, or one is too long.
    """
    earlier = [{"role": _speaker(turn), "content": _said(turn.get("content"))} for turn in history]
    description = declaration.agent.description if declaration.agent else ""
    block = splice("", evidence, boundary=boundary)
    user = "\n\n".join(filter(None, (block, _said(message))))
    return [
        {"role": "system", "content": _system(description, evidence, boundary)},
        *earlier,
        {"role": "user", "content": user},
    ]


def _system(description: str, evidence: Evidence | None, boundary: str) -> str:
    shown = evidence and evidence.count and evidence.text.strip()
    return disclose(description, boundary) if shown else description


def _speaker(turn: Mapping[str, str]) -> str:
    role = turn.get("role", "")
    if role not in ("user", "assistant"):
        raise InvalidRequest(f"history: a turn is the user's or the assistant's, not {role[:80]!r}'s")
    return role


def _said(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidRequest(f"a turn has a text for its content, not {type(text).__name__}")
    if len(text) > MAX_INPUT:
        raise InvalidRequest(f"a turn has {len(text)} characters, of which {MAX_INPUT} are allowed")
    return holdable(text)
