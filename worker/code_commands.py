"""The commands about source code: `sapwood code …`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.markup import escape

from pipeline.codegraph.questions import MAX_DEPTH, MAX_REFERENCES, Questions
from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest
from pipeline.graphs.parts import GraphRef
from schemas.code import CodeAnswer, CodeQuestion, CodeReference, CodeSymbol
from worker import show
from worker.app import Sapwood
from worker.commands import Json, run

CALL = 30.0

Corpus = Annotated[str, typer.Option("--corpus", help="The corpus, indexed with `graph_indexing.build_code_graph`.")]
Symbol = Annotated[
    str, typer.Argument(metavar="SYMBOL", help="`path::Class.method`, the end of it (`Class.method`), or a name.")
]
Depth = Annotated[int, typer.Option(min=1, max=MAX_DEPTH, help="How many steps to go.")]
Limit = Annotated[int, typer.Option(min=1, max=MAX_REFERENCES, help="How many to show at most.")]
Tenant = Annotated[str, typer.Option(help="Whose corpus it is.")]

_LISTINGS = {
    CodeQuestion.CALLERS: (
        "Show who calls SYMBOL, with the lines of the calls; with --depth 2 also who calls those.",
        "pipeline/plan.py::plan --corpus sapwood",
    ),
    CodeQuestion.CALLEES: (
        "Show what SYMBOL calls, with the lines of the calls.",
        "pipeline/plan.py::plan --corpus sapwood --depth 2",
    ),
    CodeQuestion.BASES: ("Show what the class SYMBOL inherits from.", "ParserKilled --corpus sapwood --depth 5"),
    CodeQuestion.SUBCLASSES: (
        "Show what inherits from the class SYMBOL.",
        "DependencyError --corpus sapwood --depth 2",
    ),
    CodeQuestion.IMPORTERS: (
        "Show which modules import the module SYMBOL, which may be one of outside.",
        "pipeline/plan.py --corpus sapwood",
    ),
}
"""The questions that are asked alike: what they show, and the rest of an example."""


code = typer.Typer(no_args_is_help=True, help="Ask who calls, inherits and imports what in a corpus of source code.")


def listing(question: CodeQuestion) -> Callable[..., None]:
    """Return the command that lists what a question has for an answer."""

    def command(
        symbol: Symbol,
        corpus: Corpus,
        depth: Depth = 1,
        limit: Limit = 100,
        tenant: Tenant = "default",
        json: Json = False,
    ) -> None:
        _ask(question, symbol, corpus, tenant, json, depth=depth, limit=limit)

    return command


for _question, (_said, _example) in _LISTINGS.items():
    _text = f"{_said}\n\nExample: `sapwood code {_question} {_example}`"
    code.command(_question.value, help=_text)(listing(_question))


@code.command("path")
def path(
    symbol: Symbol,
    to: Annotated[str, typer.Argument(metavar="TO", help="Where the chain is to end.")],
    corpus: Corpus,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Show a shortest chain of calls from SYMBOL to another.

    Example: `sapwood code path Fetcher.fetch addresses.py::forbidden --corpus sapwood`
    """
    _ask(CodeQuestion.PATH, symbol, corpus, tenant, json, to=to)


@code.command("symbols")
def symbols(symbol: Symbol, corpus: Corpus, limit: Limit = 100, tenant: Tenant = "default", json: Json = False) -> None:
    """Show the symbols that SYMBOL may stand for; of a module or class, given by its id, what it contains.

    Example: `sapwood code symbols pipeline/plan.py --corpus sapwood`
    """
    _ask(CodeQuestion.SYMBOLS, symbol, corpus, tenant, json, limit=limit)


def _ask(
    question: CodeQuestion,
    symbol: str,
    corpus: str,
    tenant: str,
    json: bool,
    *,
    to: str = "",
    depth: int = 1,
    limit: int = 100,
) -> None:
    async def action(sapwood: Sapwood) -> int:
        answer = await ask(Sapwood(sapwood.services, tenant), corpus, question, symbol, to, depth, limit)
        if json:
            show.as_json(answer.model_dump(mode="json"))
        else:
            _show(answer)
        return 0

    run(action)


def no_code_graph(corpus: str) -> str:
    """Return what to do about a corpus without a graph of source code."""
    cure = f"`sapwood index {corpus} --set graph_indexing.build_code_graph=true` makes one."
    return f"{corpus} has no graph of source code; {cure}"


async def ask(
    sapwood: Sapwood, corpus: str, question: CodeQuestion, symbol: str, to: str = "", depth: int = 1, limit: int = 100
) -> CodeAnswer:
    """Answer a question from the current generation of a corpus. Raises NotFound, InvalidRequest."""
    deadline = Deadline.after(CALL)
    async with sapwood.services.pins.pin(sapwood.tenant, corpus, deadline) as pinned:
        if pinned.manifest.policy != "code":
            raise InvalidRequest(no_code_graph(corpus))
        inspector = sapwood.services.inspector(pinned.manifest.graph_store)
        questions = Questions(inspector, GraphRef.of(pinned.corpus_id, pinned.manifest), deadline)
        return await questions.ask(question, symbol, to, depth, limit)


def _show(answer: CodeAnswer) -> None:
    """Print an answer: a line for each reference, that begins with the place of its evidence."""
    if answer.symbol is not None:
        _line(answer.symbol)
    for one in answer.references:
        _reference(one, answer.question)
    for symbol in answer.symbols:
        _line(symbol)
    if not answer.references and not answer.symbols:
        show.hint("nothing found")
    if answer.truncated:
        show.hint("there may be more: --limit shows them")


def _line(symbol: CodeSymbol) -> None:
    place = f"  {symbol.path}:{symbol.line}" if symbol.line else ""
    show.out.print(f"[bold]{escape(symbol.entity_id)}[/bold]  [dim]{symbol.kind}{escape(place)}[/dim]")


def _reference(one: CodeReference, question: CodeQuestion) -> None:
    """Print where a reference stands and what was found there; beyond the first step also what it refers to."""
    back = one.symbol.entity_id == one.source_id
    words = f"{one.kind} {one.target_id}" if back else f"{one.kind} from {one.source_id}"
    beyond = f"  [dim]{escape(words)}[/dim]" if one.depth > 1 and question is not CodeQuestion.PATH else ""
    show.out.print(f"{'  ' * one.depth}{escape(f'{one.path}:{one.line}')}  {escape(one.symbol.entity_id)}{beyond}")
