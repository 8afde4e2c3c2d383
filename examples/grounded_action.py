"""A role whose action is grounded in the handbook: `python examples/grounded_action.py "Who may use the Laser Cutter?"`.

It prints the prompt as the model gets it, then the answer. Set SAPWOOD_OPENAI_API_KEY and SAPWOOD_OPENAI_MODEL;
SAPWOOD_OPENAI_BASE_URL for another server than OpenAI's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from pipeline.declare import ActionType, Knowledge, Search, Strategy, action, role
from pipeline.errors import SapwoodError
from worker.app import open_sapwood
from worker.grounded import open_grounded

HANDBOOK = str(Path(__file__).parent / "handbook")
SEARCH = Search(strategy=Strategy.HYBRID, top_k=3)


@role("Steward", "You answer for a workshop.", knowledge=Knowledge("handbook", path=HANDBOOK, search=SEARCH))
class Steward:
    @action(ActionType.LLM, "Answer the question of a member.", knowledge=Knowledge("handbook"))
    def answer(self, question: str) -> None: ...


async def main(question: str) -> None:
    """Ask once."""
    async with open_sapwood() as app, open_grounded(app) as grounded:
        given = {"question": question}
        for message in await grounded.prompt(Steward(), "answer", given):
            sys.stdout.write(f"--- {message['role']}\n{message['content']}\n")
        sys.stdout.write("--- assistant\n")
        async for piece in grounded.stream(Steward(), "answer", given):
            sys.stdout.write(piece)
    sys.stdout.write("\n")


if __name__ == "__main__":
    try:
        anyio.run(main, " ".join(sys.argv[1:]) or "Who may use the Laser Cutter?")
    except SapwoodError as error:
        sys.exit(str(error))
