"""Portable MATCH as one statement of PostgreSQL over the versioned tables of entities and relations.

`matches` holds the matches with what the rows need of them, one more than may be looked at; `kept` are those that may. Each
reference to a table is scoped to the corpus ($1) and the generation ($2). Nothing of the plan stands in the text but its
shape: names in it are made of places in the pattern, the plan and the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.graphtools.execution import Bounds
from pipeline.graphtools.plan import Condition, Plan
from pipeline.graphtools.sql_pattern import Pattern
from pipeline.graphtools.sql_rows import Names, Shape, matches_of, rows_of
from pipeline.graphtools.sql_terms import Parameters, residual
from pipeline.graphtools.values import conjuncts


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement. Its rows begin with `cut`, whether matches were left out of account, and `place`, null where there is no
    row; the cells follow. `rest` are conditions that are still to be asked: if there are any, the rows are matches (all
    elements of the pattern), and are neither grouped nor ordered nor cut to the page.
    """

    text: str
    parameters: tuple[object, ...]
    shapes: tuple[Shape, ...]
    rest: tuple[Condition, ...] = ()


def compiled(plan: Plan, corpus: int, generation: int, bounds: Bounds) -> Statement:
    """Return the statement for a plan, for the graph of this generation."""
    parameters, names = Parameters(corpus, generation), Names()
    steps = parameters.add(bounds.steps, "bigint")
    asked = conjuncts(plan.where)
    rest = tuple(one for one in asked if residual(one))
    rows = (matches_of if rest else rows_of)(plan, names)
    pattern = Pattern(plan, [one for one in asked if one not in rest], names, parameters, steps)
    pattern.build()
    page, last = rows.query, ""
    if not rest:
        offset, most = parameters.add(bounds.offset, "bigint"), parameters.add(bounds.rows, "bigint")
        page, last = f"{rows.query} offset {offset} limit {most}", "\norder by place"
    cut = " or ".join(f"(select count(*) from {name}) > {steps}" for name in pattern.bounded)
    ctes = ",\n".join([*pattern.ctes, f"kept as (select * from matches limit {steps})", *rows.ctes])
    text = (
        f"with recursive {ctes}\nselect cut, place, {', '.join(rows.cells)}\nfrom (select {cut} as cut) as status\n"
        f"left join (select *, row_number() over () as place from ({page}) as ordered) as page on true{last}"
    )
    return Statement(text, parameters.values, rows.shapes, rest)
