"""A pattern of a portable MATCH as queries over the versioned tables of PostgreSQL; the last of them is `matches`.

Edges next to each other are one join, for whose order the planner is responsible. An edge of several hops is a recursive
query of its own (`w1`), of which no more rows are read (`p1`) than steps are allowed; the pattern is then followed from
the node on that its conditions say most about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pipeline.graphtools.plan import Condition, EdgePlan, Plan, Predicate, Property
from pipeline.graphtools.query import Direction, Operator
from pipeline.graphtools.sql_rows import Names
from pipeline.graphtools.sql_terms import Parameters, collated, compared, condition, conforming, predicates

_RELATIONS = (
    "select ctid as tid, {near} as near, {far} as far, {forth} as forth, type, weight, evidence, properties,"
    " corpus_id, born, died from relation"
)
"""The conditions follow outside: PostgreSQL joins a union by an index only if its members have none."""


class Pattern:
    """The work on one pattern. `ctes` are its queries, `bounded` those that hold more rows than steps if they were cut.

    A query in the making joins the tables of `_fresh` elements to what the query before it holds (`m`); `_bound` says how each
    column reads in it.
    """

    def __init__(
        self, plan: Plan, asked: Sequence[Condition], names: Names, parameters: Parameters, steps: str
    ) -> None:
        self.ctes: list[str] = []
        self.bounded: list[str] = []
        self._plan = plan
        self._asked = list(asked)
        self._names = names
        self._parameters = parameters
        self._steps = steps
        self._from: list[str] = []
        self._where: list[str] = []
        self._bound: dict[str, str] = {}
        self._fresh: dict[int, str] = {}
        self._terms: dict[tuple[Property, bool], str] = {}
        self._edges: list[int] = []

    def build(self) -> None:
        """Fill `ctes` and `bounded`."""
        for one in self._asked:
            for predicate in predicates(one):
                self._names.value(predicate.property)
        start = _start(self._plan, self._asked)
        self._node(start)
        for place, right in _walk(self._plan, start):
            (self._edge if self._plan.edges[place // 2].one else self._path)(place, right)
            self._edges.append(place)
        used = self._names.used
        available = self._available([key for key, name in self._names.values.items() if name in used])
        shown = [f"{available[name]} as {name}" for name in used]
        self._query(f"matches as materialized (select {', '.join(shown) or '1 as one'}", f" limit {self._steps} + 1)")
        self.bounded.append("matches")

    def _node(self, place: int, *joined: str) -> None:
        """Join the entity of a node."""
        alias = self._fresh[place] = f"e{place}"
        types = self._parameters.add(sorted(self._plan.nodes[place // 2].types), "text[]")
        self._from.append(f"entity {alias}")
        self._where += (*joined, _scope(alias), f"{alias}.type = any({types})")
        self._bound[f"n{place}"] = f"{alias}.entity_no"
        self._bound[f"t{place}"] = f"{alias}.type"
        self._bound[f"i{place}"] = f'{alias}.entity_id collate "C"'

    def _edge(self, place: int, right: bool) -> None:
        """Join the relation of a single edge and the entity behind it."""
        near, far = (place - 1, place + 1) if right else (place + 1, place - 1)
        edge, alias = self._plan.edges[place // 2], f"r{place}"
        self._fresh[place] = alias
        self._from.append(f"({_relations(edge, right)}) {alias}")
        self._where += [_scope(alias), f"{alias}.near = {self._bound[f'n{near}']}", *_once(edge, alias)]
        self._where += [f"{alias}.tid <> {other}" for other in self._others(edge, self._bound)]
        self._node(far, f"e{far}.entity_no = {alias}.far")
        ends = self._bound[f"t{near}"], self._bound[f"t{far}"]
        known = self._plan.nodes[near // 2].types, self._plan.nodes[far // 2].types
        self._where += self._kinds(edge, right, alias, ends, known)
        source, target = _ways(edge, right, alias, self._bound[f"i{near}"], self._bound[f"i{far}"])
        self._bound |= {f"r{place}": f"{alias}.tid", f"y{place}": f'{alias}.type collate "C"'}
        self._bound |= {f"s{place}": source, f"g{place}": target}

    def _path(self, place: int, right: bool) -> None:
        """End the query at hand, walk on from it, and begin the next one with the node at which a walk ended."""
        near, far = (place - 1, place + 1) if right else (place + 1, place - 1)
        edge, before, walk, paths = self._plan.edges[place // 2], f"b{place}", f"w{place}", f"p{place}"
        available = self._available(self._names.values)
        self._query(f"{before} as (select {', '.join(f'{text} as {name}' for name, text in available.items())}", ")")
        self.ctes.append(self._walk(place, near, right, list(available), before, walk))
        self.ctes.append(f"{paths} as materialized (select * from {walk} limit {self._steps} + 1)")
        self.bounded.append(paths)
        least = self._parameters.add(edge.least, "int")
        self._from, self._where, self._fresh, self._terms = [f"{paths} m"], [f"m.hop >= {least}"], {}, {}
        self._bound = {name: f"m.{name}" for name in available}
        self._bound |= {f"r{place}": "m.edges", f"n{place}": "m.nodes", f"x{place}": "m.key"}
        self._node(far, f"e{far}.entity_no = m.node")

    def _walk(self, place: int, near: int, right: bool, carried: list[str], before: str, walk: str) -> str:
        """Return the query of all paths of an edge, from the shortest to the longest, each with what was bound before it."""
        edge = self._plan.edges[place // 2]
        source, target = _ways(edge, right, "r", "m.public", "e.entity_id")
        steps = {
            "nodes": (f"array[m.n{near}]", _joined("m.nodes", "array[r.far]", right)),
            "key": (f"array[m.i{near}]", _joined("m.key", _hop(source, target, right), right)),
        }
        kept = [name for name in steps if f"{'n' if name == 'nodes' else 'x'}{place}" in self._names.used]
        columns = ", ".join([*carried, "hop", "node", "kind", "public", "edges", *kept])
        same = "".join(f"m.{name}, " for name in carried)
        first, next_ = ("".join(f", {_text_list(steps[name][at], name)}" for name in kept) for at in (0, 1))
        most = self._parameters.add(edge.most, "int")
        others = [f"r.tid <> {other}" for other in self._others(edge, {name: f"m.{name}" for name in carried})]
        where = [
            f"m.hop < {most}", _scope("r"), "r.near = m.node", *_once(edge, "r"), "r.tid <> all(m.edges)", *others,
            _scope("e"), "e.entity_no = r.far", *self._kinds(edge, right, "r", ("m.kind", "e.type"), (frozenset(), frozenset())),
        ]  # fmt: skip
        return (
            f"{walk} ({columns}) as (select {same}0, m.n{near}, m.t{near}, m.i{near}, '{{}}'::tid[]{first} from {before} m"
            f'\nunion all select {same}m.hop + 1, r.far, e.type, e.entity_id collate "C", '
            f"{_joined('m.edges', 'array[r.tid]', right)}{next_}"
            f"\nfrom {walk} m, ({_relations(edge, right)}) r, entity e where {' and '.join(where)})"
        )

    def _others(self, edge: EdgePlan, bound: dict[str, str]) -> Iterator[str]:
        """Yield the edges bound before that may be the same relation: none is in a match twice."""
        mine = {kind.stored for kind in edge.kinds}
        for place in self._edges:
            other = self._plan.edges[place // 2]
            if mine & {kind.stored for kind in other.kinds}:
                yield bound[f"r{place}"] if other.one else f"all({bound[f'r{place}']})"

    def _kinds(
        self,
        edge: EdgePlan,
        right: bool,
        alias: str,
        ends: tuple[str, str],
        known: tuple[frozenset[str], frozenset[str]],
    ) -> Iterator[str]:
        """Yield what makes a relation one of the edge's kinds: its type and, as far as they are not `known`, its ends'."""
        yield f"{alias}.type = any({self._parameters.add(sorted(kind.stored for kind in edge.kinds), 'text[]')})"
        followed = _followed(edge, right)
        forth = self._ends(edge, alias, ends, known) if followed[0] else ""
        back = self._ends(edge, alias, (ends[1], ends[0]), (known[1], known[0])) if followed[1] else ""
        if all(followed) and (forth or back):
            yield f"case when {alias}.forth then {forth or 'true'} else {back or 'true'} end"
        elif forth or back:
            yield forth or back

    def _ends(
        self, edge: EdgePlan, alias: str, ends: tuple[str, str], known: tuple[frozenset[str], frozenset[str]]
    ) -> str:
        """Return the condition that a relation's source and target are of types that its kind allows; nothing if they must be."""
        if all(known[0] and known[0] <= kind.sources and known[1] and known[1] <= kind.targets for kind in edge.kinds):
            return ""
        alike: dict[tuple[frozenset[str], frozenset[str]], list[str]] = {}
        for kind in edge.kinds:
            alike.setdefault((kind.sources, kind.targets), []).append(kind.stored)
        choices: list[str] = []
        for (sources, targets), stored in alike.items():
            of_types = [f"{alias}.type = any({self._listed(stored)})"] if len(alike) > 1 else []
            of_ends = [f"{ends[0]} = any({self._listed(sources)})", f"{ends[1]} = any({self._listed(targets)})"]
            choices.append(" and ".join(of_types + of_ends))
        return f"({' or '.join(choices)})"

    def _listed(self, types: frozenset[str] | list[str]) -> str:
        return self._parameters.add(sorted(types), "text[]")

    def _available(self, values: Iterable[tuple[Property, bool]]) -> dict[str, str]:
        """Return the columns that there are by now, these values of properties included."""
        unseen = {name for name in self._bound if name[0] in "x"} - self._names.used.keys()
        unseen |= {f"n{place}" for place in self._edges if f"n{place}" not in self._names.used}
        found = {name: text for name, text in self._bound.items() if name not in unseen}
        for wanted, shown in values:
            if wanted.element in self._fresh:
                found[self._names.value(wanted, shown)] = collated(self._term(wanted, shown), wanted.type)
        return found

    def _query(self, head: str, tail: str) -> None:
        """Add the query at hand, with all conditions that can be asked by now."""
        bound = {int(name[1:]) for name in self._bound if name[0] in "nr"}
        due = [one for one in self._asked if all(p.property.element in bound for p in predicates(one))]
        self._asked = [one for one in self._asked if one not in due]
        where = [*self._where, *(condition(one, self._read, self._parameters) for one in due)]
        self.ctes.append(f"{head}\nfrom {', '.join(self._from)}\nwhere {' and '.join(where)}{tail}")

    def _read(self, wanted: Property) -> str:
        if wanted.element in self._fresh:
            return self._term(wanted)
        return self._bound[self._names.value(wanted)]

    def _term(self, wanted: Property, shown: bool = False) -> str:
        """Return a property of an element of the query at hand: as it is compared, or as it is shown."""
        if (known := self._terms.get((wanted, shown))) is None:
            value = conforming(self._fresh[wanted.element], wanted, self._parameters)
            known = self._terms[wanted, shown] = value if shown else compared(value, wanted.type)
        return known


def _scope(alias: str) -> str:
    return f"{alias}.corpus_id = $1 and {alias}.born <= $2 and ({alias}.died is null or {alias}.died > $2)"


def _followed(edge: EdgePlan, right: bool) -> tuple[bool, bool]:
    """Return whether relations are followed from the source to the target, and whether from the target to the source."""
    out, into = (Direction.OUT, Direction.IN) if right else (Direction.IN, Direction.OUT)
    return edge.direction in (out, Direction.BOTH), edge.direction in (into, Direction.BOTH)


def _relations(edge: EdgePlan, right: bool) -> str:
    """Return the relations by the end that is `near` and the one that is `far`."""
    forth, back = _followed(edge, right)
    leaving = _RELATIONS.format(near="source_no", far="target_no", forth="true")
    arriving = _RELATIONS.format(near="target_no", far="source_no", forth="false")
    return f"{leaving} union all {arriving}" if forth and back else leaving if forth else arriving


def _once(edge: EdgePlan, alias: str) -> list[str]:
    """Return the condition that a relation that ends where it begins is there only once."""
    return [f"({alias}.forth or {alias}.near <> {alias}.far)"] if edge.direction is Direction.BOTH else []


def _ways(edge: EdgePlan, right: bool, alias: str, near: str, far: str) -> tuple[str, str]:
    """Return source and target of what are the near and the far end."""
    match _followed(edge, right):
        case True, True:
            return (
                f"case when {alias}.forth then {near} else {far} end",
                f"case when {alias}.forth then {far} else {near} end",
            )
        case True, _:
            return near, far
        case _:
            return far, near


def _joined(path: str, more: str, right: bool) -> str:
    return f"{path} || {more}" if right else f"{more} || {path}"


def _hop(source: str, target: str, right: bool) -> str:
    """Return what a path is ordered by, of one hop: its edge, and the node at its end."""
    edge = f"{source}, r.type, {target}"
    return f"array[{edge}, e.entity_id]" if right else f"array[e.entity_id, {edge}]"


def _text_list(value: str, name: str) -> str:
    return f'({value}) collate "C"' if name == "key" else value


def _walk(plan: Plan, start: int) -> list[tuple[int, bool]]:
    """Return the places of the edges in the order in which they are followed, and whether to the right."""
    last = 2 * len(plan.edges)
    return [(place, True) for place in range(start + 1, last, 2)] + [
        (place, False) for place in range(start - 1, 0, -2)
    ]


def _start(plan: Plan, asked: Sequence[Condition]) -> int:
    """Return the node to begin with. Where all edges are single, the planner chooses."""
    if all(edge.one for edge in plan.edges):
        return 0
    known = dict.fromkeys(range(0, 2 * len(plan.nodes), 2), 0)
    for one in asked:
        if isinstance(one, Predicate) and one.property.element in known:
            exact = one.operator in (Operator.EQ, Operator.IN)
            known[one.property.element] += (100 if one.property.stored == "name" else 10) if exact else 1
    return max(known, key=lambda place: (known[place], -place))
