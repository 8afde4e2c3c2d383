"""Never run, only type-checked: decorated classes and functions keep their types, and wrong members are seen."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar, assert_type

from pipeline.declare import ActionType, Declaration, Knowledge, Search, Strategy, action, agent, declaration_of, role

T = TypeVar("T")


@action(ActionType.LOCAL, "Count the words.")
def count(text: str, *, twice: bool = False) -> int:
    return len(text.split()) * (1 + twice)


@role(
    "Researcher",
    "Answers from the handbook.",
    knowledge=[Knowledge("handbook", path="handbook", search=Search(strategy=Strategy.HYBRID, top_k=8))],
    actions=[count],
)
class Researcher:
    def __init__(self, language: str) -> None:
        self.language = language

    @action(ActionType.LLM, "Answer from the handbook.", knowledge=Knowledge("handbook"))
    async def answer(self, question: str, limit: int = 3) -> list[str]:
        return [question] * limit

    @action(ActionType.LOCAL, "Stream what is found.", knowledge=[Knowledge("handbook", max_tokens=500)])
    async def stream(self, question: str) -> AsyncIterator[str]:
        yield question

    @action(ActionType.LOCAL, "Give it back.")
    def same(self, thing: T) -> T:
        return thing

    @staticmethod
    @action(ActionType.LOCAL, "Shout.")
    def shout(text: str) -> str:
        return text.upper()

    @classmethod
    @action(ActionType.LOCAL, "Make one.")
    def english(cls) -> Researcher:
        return cls("en")


@agent("Helps.", roles=[Researcher])
class Helper(Researcher):
    pass


async def right(one: Researcher) -> None:
    assert_type(Researcher("en"), Researcher)
    assert_type(Helper("en").language, str)
    assert_type(await one.answer("leave", limit=2), list[str])
    assert_type(one.stream("leave"), AsyncIterator[str])
    assert_type(one.same(5), int)
    assert_type(Researcher.shout("leave"), str)
    assert_type(Researcher.english(), Researcher)
    assert_type(count("leave", twice=True), int)
    assert_type(declaration_of(Researcher), Declaration)


async def wrong(one: Researcher) -> None:
    await one.answer(5)  # type: ignore[arg-type]
    await one.answer("leave", most=2)  # type: ignore[call-arg]
    count("leave", True)  # type: ignore[call-arg]
    Researcher()  # type: ignore[call-arg]
    Search(top_k=(5, 6))  # type: ignore[arg-type]
    Search(strategy="hybrid")  # type: ignore[arg-type]
    Search(topk=5)  # type: ignore[call-arg]
    Knowledge(path="handbook")  # type: ignore[call-arg]
    Knowledge("handbook", include="*.md")  # type: ignore[arg-type]
    action("llm", "Answer.")  # type: ignore[arg-type]
    role("Researcher", "Answers.")(count)  # type: ignore[type-var]
