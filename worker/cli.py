"""The command `sapwood`. Each command opens the application, does one thing, and ends with a documented exit code."""

from __future__ import annotations

import gc as collector
import sys
from collections.abc import Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any

import anyio
import anyio.to_thread
import typer

from pipeline.errors import InvalidRequest, NotFound
from pipeline.ingest.child import YOUNG
from pipeline.ingest.sources import at_revision
from schemas.query import Strategy
from worker import operations, show
from worker.app import Sapwood
from worker.changes import apply_changes
from worker.code_commands import code
from worker.commands import Json, run, seconds
from worker.embedded_commands import register
from worker.endings import Exit, guarded
from worker.gateway.command import gateway
from worker.graph_commands import graphs, match
from worker.health import verdict
from worker.key_commands import keys, tenants
from worker.mcp.command import mcp
from worker.settings import load, misspelt
from worker.webhook_commands import webhooks

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="GraphRAG in production: index jobs, atomic generations, retrieval events.\n\n"
    "**Exit codes**: 0 done, 1 failed, 2 usage or configuration, 3 partial (some documents failed), 4 cancelled or expired.",
)


def tell_version(asked: bool) -> None:
    """Print the version and end, if it was asked for."""
    if asked:
        show.out.print(f"sapwood {version('sapwood')}")
        raise typer.Exit(Exit.DONE)


@app.callback()
def check_environment(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=tell_version, is_eager=True)
    ] = False,
) -> None:
    for name, meant in ({} if context.invoked_subcommand in TELL_THEMSELVES else misspelt()).items():
        show.problem(f"{name} is not a setting; did you mean {meant}?")


corpus_app = typer.Typer(no_args_is_help=True, help="Make, list, show and delete corpora.")
app.add_typer(corpus_app, name="corpus")
register(app)


TELL_THEMSELVES = frozenset({"doctor", "worker", "gateway", "up"})
"""Commands that say it in their own form, or in their logs, when a variable is misspelt."""


CorpusName = Annotated[str, typer.Argument(metavar="CORPUS", help="Name of the corpus.")]
Changes = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting, e.g. `chunk.max_chars=800`.")
]


for name, part in {"tenant": tenants, "key": keys, "webhook": webhooks, "graph": graphs, "code": code}.items():
    app.add_typer(part, name=name)
app.command()(match)
app.command()(gateway)
app.command()(mcp)


def pairs(items: Sequence[str]) -> dict[str, str]:
    """Return the values in `KEY=VALUE` by key. Raises BadParameter."""
    for item in items:
        if item.find("=") < 1:
            raise typer.BadParameter(f"{item!r} is not KEY=VALUE", param_hint="--filter")
    return {key: value for key, _, value in (item.partition("=") for item in items)}


@corpus_app.command("list")
def corpus_list(json: Json = False) -> None:
    """List the corpora with their current generations."""

    async def action(sapwood: Sapwood) -> int:
        show.corpora(await sapwood.corpora(), json)
        return Exit.DONE

    run(action)


@corpus_app.command("create")
def corpus_create(corpus: CorpusName, changes: Changes = [], json: Json = False) -> None:  # noqa: B006 - typer copies it
    """Make a corpus, or change its settings.

    Example: `sapwood corpus create papers --set graph_search.ranking=walk`
    """

    async def action(sapwood: Sapwood) -> int:
        show.corpus(
            await sapwood.create_corpus(corpus, apply_changes(await sapwood.settings_of(corpus), changes)), json
        )
        return Exit.DONE

    run(action)


@corpus_app.command("show")
def corpus_show(corpus: CorpusName, json: Json = False) -> None:
    """Show a corpus: its settings, sources and current generation."""

    async def action(sapwood: Sapwood) -> int:
        show.corpus(await sapwood.corpus(corpus), json, sources=await sapwood.sources(corpus))
        return Exit.DONE

    run(action)


@corpus_app.command("delete")
def corpus_delete(
    corpus: CorpusName, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, json: Json = False
) -> None:
    """Delete a corpus with everything that came from it."""
    if not yes and not agreed(f"Delete {corpus} and all that is in it?"):
        raise typer.Exit(Exit.STOPPED)

    async def action(sapwood: Sapwood) -> int:
        await sapwood.delete_corpus(corpus)
        show.done(f"{corpus} is deleted", {"corpus": corpus, "deleted": True}, json)
        return Exit.DONE

    run(action)


def agreed(question: str) -> bool:
    """Ask on standard error; without an answer it is no."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        show.problem("nobody answered; with --yes nobody is asked")
        return False


@app.command()
def index(
    corpus: CorpusName,
    source: Annotated[
        list[str], typer.Argument(help="Folders, files, URLs, triples (.jsonl), repositories (git+https://…@rev).")
    ] = [],  # noqa: B006
    rev: Annotated[str, typer.Option(help="Read the sources as git repositories at this branch, tag or commit.")] = "",
    generated: Annotated[
        bool, typer.Option("--generated", help="Of repositories also generated and vendored files.")
    ] = False,
    submodules: Annotated[bool, typer.Option("--submodules", help="Of repositories also the submodules.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the work to `sapwood worker`.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on: sync again whenever a file changes.")] = False,
    include: Annotated[
        list[str], typer.Option(help="Only files that match this glob; hidden ones too if it names a dot.")
    ] = [],  # noqa: B006
    exclude: Annotated[list[str], typer.Option(help="No files that match this glob.")] = [],  # noqa: B006
    changes: Changes = [],  # noqa: B006
    actor: Annotated[str, typer.Option(help="With --override-reason: who lets a sparse generation pass.")] = "",
    override_reason: Annotated[str, typer.Option(help="Why (20 characters or more).")] = "",
    json: Json = False,
) -> None:
    """Make CORPUS mirror these sources: new, changed and vanished files. Without a SOURCE: those it remembers.

    Of folders, hidden files, `node_modules`, and what a `.gitignore` names are left out.

    Examples: `sapwood index handbook examples/handbook` ·
    `sapwood index site https://example.org/page.html --detach` · `sapwood index notes ~/notes --watch` ·
    `sapwood index code ~/project --rev v1.2 --set graph_indexing.build_code_graph=true`
    """

    def asked() -> operations.IndexRequest:
        if (rev or generated or submodules) and not source:
            raise InvalidRequest("--rev, --generated and --submodules say how sources are read: name them again.")
        at = [at_revision(one, rev, generated=generated, submodules=submodules) for one in source]
        return operations.IndexRequest(
            corpus=corpus,
            sources=tuple(at),
            include=tuple(include),
            exclude=tuple(exclude),
            changes=tuple(changes),
            actor=actor,
            override_reason=override_reason,
        )

    async def action(sapwood: Sapwood) -> int:
        request = await anyio.to_thread.run_sync(asked)
        return await operations.index(sapwood, request, detach=detach, watch=watch, json=json)

    run(action)


@app.command()
def query(
    corpus: CorpusName,
    text: Annotated[str, typer.Argument(help="The question.")],
    strategy: Annotated[Strategy, typer.Option(help="How to find chunks.")] = Strategy.HYBRID,
    top_k: Annotated[int, typer.Option(min=1, max=1000, help="How many hits.")] = 5,
    min_score: Annotated[float, typer.Option(min=0.0, max=1.0, help="Least score.")] = 0.0,
    deadline: Annotated[str, typer.Option(help="When to answer with what is there: `2s`, `300ms`.")] = "10s",
    strict: Annotated[bool, typer.Option("--strict", help="An error at the deadline instead of a part.")] = False,
    neighbors: Annotated[int, typer.Option(min=0, max=10, help="Chunks to show on either side of a hit.")] = 0,
    filters: Annotated[list[str], typer.Option("--filter", metavar="KEY=VALUE", help="Exact metadata match.")] = [],  # noqa: B006
    ranking: Annotated[str, typer.Option(help="Graph ranking: walk or ppr (default: the corpus's).")] = "",
    expander: Annotated[str, typer.Option(help="The model that asks in other words too, e.g. openai/NAME.")] = "",
    navigator: Annotated[str, typer.Option(help="For reasoning: the model, e.g. openai/NAME.")] = "",
    time_field: Annotated[str, typer.Option(help="For temporal: the metadata key that holds a time.")] = "",
    half_life: Annotated[float | None, typer.Option(help="For temporal: days after which recency counts half.")] = None,
    since: Annotated[str, typer.Option(help="For temporal: only what is from then on, ISO 8601.")] = "",
    until: Annotated[str, typer.Option(help="For temporal: only what is from before, ISO 8601.")] = "",
    rerank: Annotated[bool, typer.Option("--rerank", help="Let a model order the hits anew.")] = False,
    reranker: Annotated[str, typer.Option(help="For --rerank: the model, e.g. openai/NAME.")] = "",
    top_n: Annotated[int | None, typer.Option(min=1, help="For --rerank: how many hits to keep.")] = None,
    queue: Annotated[bool, typer.Option("--queue", help="Let a `sapwood worker` answer.")] = False,
    json: Json = False,
) -> None:
    """Ask a question.

    Example: `sapwood query handbook "Who may use the laser cutter?" --strategy hybrid --top-k 3 --deadline 2s --json`
    """
    times = {"field": time_field, "half_life_days": half_life, "since": since, "until": until}
    values: dict[str, Any] = {
        "text": text,
        "strategy": strategy,
        "top_k": top_k,
        "min_score": min_score,
        "deadline": seconds(deadline),
        "partial": not strict,
        "neighbors": neighbors,
        "filters": pairs(filters),
        "ranking": ranking or None,
        "expander": expander,
        "navigator_model": navigator,
        "temporal": {name: value for name, value in times.items() if value not in ("", None)} or None,
        "rerank": rerank,
        "reranker": reranker,
        "top_n": top_n,
    }
    raise typer.Exit(guarded(lambda: operations.run_query(corpus, values, queue=queue, json=json)))


@app.command()
def events(
    target: Annotated[str, typer.Argument(metavar="RUN|CORPUS", help="A run's id, or a corpus's name.")],
    after: Annotated[
        int, typer.Option(min=0, help="Only events after this number; of a corpus: after this position.")
    ] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    json: Json = False,
) -> None:
    """Print the events of a run or a corpus; a run's end with its terminal event.

    Example: `sapwood events RUN --after 3 --follow --json`
    """
    run(lambda sapwood: operations.events(sapwood, target, after, follow=follow, json=json))


@app.command()
def cancel(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")],
    reason: Annotated[str, typer.Option(help="Why; it is in the event.")] = "",
    json: Json = False,
) -> None:
    """Cancel a run and wait until nothing of it works any more."""
    run(lambda sapwood: operations.cancel(sapwood, run_id, reason, json=json))


@app.command()
def generations(corpus: CorpusName, json: Json = False) -> None:
    """List the generations of a corpus, newest first."""

    async def action(sapwood: Sapwood) -> int:
        show.generations(await sapwood.generations(corpus), json)
        return Exit.DONE

    run(action)


@app.command()
def rollback(
    corpus: CorpusName,
    number: Annotated[int, typer.Argument(metavar="N", help="A retained generation.")],
    json: Json = False,
) -> None:
    """Publish an earlier generation again, as a new number."""

    async def action(sapwood: Sapwood) -> int:
        try:
            new = await sapwood.rollback(corpus, number)
        except NotFound as error:
            raise NotFound(f"{error} {await operations.retained(sapwood, corpus)}") from error
        show.done(f"generation {number} is current again, as {new}", {"generation": new, "from": number}, json)
        return Exit.DONE

    run(action)


@app.command()
def export(
    corpus: CorpusName,
    generation: Annotated[int | None, typer.Option(min=1, help="Which; default: the current one.")] = None,
    graph: Annotated[
        bool, typer.Option("--graph", help="Only the current graph, from the store that serves it.")
    ] = False,
) -> None:
    """Write a generation as canonical JSONL: equal contents give equal bytes after the first line.

    Example: `sapwood export handbook | tail -n +2 | sha256sum`

    Example: `sapwood export handbook --graph | grep '"kind":"entities"'`
    """

    async def action(sapwood: Sapwood) -> int:
        if graph and generation is not None:
            raise InvalidRequest("--graph reads the current generation; leave --generation out.")
        async for line in sapwood.export_graph(corpus) if graph else sapwood.export(corpus, generation):
            sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()
        return Exit.DONE

    run(action)


@app.command()
def gc(
    corpus: CorpusName,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Generations to keep (default: the corpus's setting).")
    ] = None,
    json: Json = False,
) -> None:
    """Remove what no current, retained or pinned generation can see. `--keep 1` leaves nothing of deleted documents."""

    async def action(sapwood: Sapwood) -> int:
        counts = await sapwood.gc(corpus, keep)
        show.collected(counts, json)
        return Exit.DONE

    run(action)


@app.command()
def worker() -> None:
    """Work on queued runs until SIGTERM; then hand back what is under way and exit 0.

    Example: `sapwood worker &` then `sapwood index handbook examples/handbook --detach`
    """
    raise typer.Exit(guarded(operations.run_worker_process))


@app.command()
def health(
    ready: Annotated[
        bool, typer.Option("--ready", help="Also fail where the database has not answered lately.")
    ] = False,
    json: Json = False,
) -> None:
    """Tell whether the worker of this home lives: exit 0 if so, else 1.

    Probes run `python -m worker.health`, which is the same and loads faster.
    """

    def action() -> int:
        well, line = verdict(load().pulse_file, ready=ready)
        show.done(line, {"ok": well, "detail": line}, json)
        return Exit.DONE if well else Exit.FAILED

    raise typer.Exit(guarded(action))


def main() -> None:
    """Run the command; a character that the terminal's encoding lacks is shown as `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    collector.freeze()
    collector.set_threshold(*YOUNG)
    app(prog_name="sapwood")
