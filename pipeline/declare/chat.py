"""What carries out an LLM action: the prompt that it is sent, and the port of the model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.declare.actions import Action
from pipeline.declare.classes import Declaration
from pipeline.declare.fence import disclose, splice
from pipeline.declare.keys import Evidence

Prompt = Sequence[Mapping[str, str]]
"""Messages with `role` and `content`."""


class ChatModel(Protocol):
    """Answers prompts."""

    def stream(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[str, None]:
        """Yield the answer piece by piece, by the deadline.

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
    system = spec.description if spec else ""
    if evidence and evidence.count and evidence.text.strip():
        system = disclose(system, boundary)
    user = splice(action.description, evidence, inputs, boundary)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
