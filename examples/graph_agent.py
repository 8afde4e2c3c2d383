"""An agent that answers from published graphs: `python examples/graph_agent.py "Which teams are part of what?"`.

Publish a graph first (`sapwood graph publish`), and set OPENAI_API_KEY; OPENAI_BASE_URL for another server than OpenAI's,
OPENAI_MODEL for another model.
"""

from __future__ import annotations

import os
import sys
from typing import Any, cast

import anyio
from openai import AsyncOpenAI, OpenAIError

from pipeline.errors import SapwoodError
from pipeline.graphtools.calls import answer_openai
from pipeline.graphtools.definitions import SYSTEM_PROMPT
from worker.app import open_sapwood

TURNS = 12
"""Replies of the model at most; most questions take four."""


async def answer(question: str) -> str:
    """Return what the model says once it asks no tool any more."""
    async with open_sapwood() as sapwood, AsyncOpenAI() as client:
        tools = await sapwood.graphs.tools()
        messages: list[Any] = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}]
        for _ in range(TURNS):
            completion = await client.chat.completions.create(
                model=os.environ.get("OPENAI_MODEL", "gpt-5"), messages=messages, tools=cast("Any", tools.definitions())
            )
            reply = completion.choices[0].message
            messages.append(reply.model_dump(exclude_none=True))
            if not reply.tool_calls:
                return reply.content or ""
            messages += await answer_openai(tools, reply.tool_calls)
    return f"No answer after {TURNS} turns."


if __name__ == "__main__":
    try:
        sys.stdout.write(anyio.run(answer, " ".join(sys.argv[1:]) or "Which teams are part of what?") + "\n")
    except (SapwoodError, OpenAIError) as error:
        sys.exit(str(error))
