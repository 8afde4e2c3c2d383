"""Hierarchical Leiden over the entities of a generation: a pure function of the graph, whatever the order of its rows.

A cluster above the size limit is clustered again on its own edges, level by level, until it is small enough or does not fall
apart any more (see `leiden`). What becomes of a cluster follows from its own members and edges alone, so that one in which
nothing changed since the generation before is not clustered again: an edit costs the coarsest level and what it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pipeline.graphs.parts import Clusters
from pipeline.ingest.leiden import clustered, modularity
from schemas.graph import Community
from schemas.ids import CommunityId, EntityNo, number_of

Ints = NDArray[np.int64]

FINGERPRINT = "leiden-2"
"""Changes with what communities a graph has: where a generation was grouped by another, its communities are found anew."""

LEADERS = 5
"""How many members a summary names."""

Path = tuple[int, ...]
"""The communities of an entity from coarsest to finest."""

Split = Callable[[Sequence[Community], Sequence[Ints]], Sequence[Sequence[Ints]]]
"""Into what communities, given with the positions of their members, fall apart: nothing or one part, where they do not."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The visible graph: distinct `entities` in ascending order, and the symmetric matrix of `weights` between their positions.

    `touched` are entities that came, went or have another name since the generation before, or one of whose relations did.
    """

    entities: Ints
    weights: Any
    touched: Ints

    @property
    def degrees(self) -> Ints:
        """With how many others each entity has relations."""
        degrees: Ints = np.diff(self.weights.indptr)
        return degrees


@dataclass(frozen=True, slots=True)
class Labels:
    """What entities are called: distinct `entities` in ascending order, with what belongs to each of them."""

    entities: Ints
    ids: Sequence[str]
    names: Sequence[str]
    descriptions: Sequence[str]

    @property
    def shown(self) -> list[str]:
        """The names; an entity without one shows as its id."""
        return [name or public for name, public in zip(self.names, self.ids, strict=True)]


@dataclass(frozen=True, slots=True)
class Partition:
    """Who belongs where. `entities` ascend; `paths[i]` are the communities of `entities[i]` from coarsest to finest.

    `communities` are ordered by level, then id. `modularity` is that of the coarsest level (0 without edges),
    None where it is that of the generation before.
    """

    entities: Ints
    paths: Sequence[Path]
    communities: Sequence[Community]
    modularity: float | None

    @property
    def levels(self) -> int:
        """The number of levels."""
        return max((len(path) for path in self.paths), default=0)


def graph_of(entities: Ints, edges: Ints, touched: Ints | None = None) -> Graph:
    """Return the graph of entities and `edges`, (n, 3): source, target, evidence; in any order, an edge may be repeated, in both
    directions and under several types. Edges to unknown entities are left out.
    """
    nodes = np.unique(entities)
    none = np.empty(0, dtype=np.int64)
    return Graph(nodes, _adjacency(nodes, edges), none if touched is None else np.unique(touched))


def detect(entities: Ints, edges: Ints, max_cluster_size: int) -> Partition:
    """Return the communities of a graph of which nothing is known."""
    return regroup(graph_of(entities, edges), {}, max_cluster_size)


def regroup(graph: Graph, before: Mapping[int, Path], max_cluster_size: int) -> Partition:
    """Return the communities; an entity without edges is one of its own.

    Edges are undirected and weigh the sum of their evidence. A community's id follows from its members alone, so an
    unchanged one keeps it. `before` are the paths in the generation before, if that was grouped alike; the result is the
    same without them.
    """
    kept = _kept(before, graph.touched)
    related = graph.degrees > 0
    inside = np.flatnonzero(related)
    coarsest, quality = _whole(graph, inside) if len(inside) else ([], 0.0)

    def split(communities: Sequence[Community], parts: Sequence[Ints]) -> Sequence[Sequence[Ints]]:
        found: list[Sequence[Ints]] = [()] * len(parts)
        large = [at for at, part in enumerate(parts) if len(part) > max_cluster_size]
        for at in large:
            parts_before = kept.get(communities[at].community_id, ())
            found[at] = [np.searchsorted(graph.entities, np.sort(np.array(one))) for one in parts_before]
        anew = [at for at in large if communities[at].community_id not in kept]
        for at, pieces in zip(anew, _pieces(graph, [parts[at] for at in anew]), strict=True):
            found[at] = pieces
        return found

    return _nested(graph.entities, related, coarsest, split, quality)


def _kept(before: Mapping[int, Path], touched: Ints) -> dict[int, list[list[int]]]:
    """Return by id into what members the communities fell apart that no touched entity was in."""
    dirty = {community for entity in cast("list[int]", touched.tolist()) for community in before.get(entity, ())}
    groups: dict[Path, list[int]] = {}
    for entity, path in before.items():
        groups.setdefault(path, []).append(entity)
    parts: dict[int, dict[int, list[int]]] = {}
    for path, entities in groups.items():
        for outer, inner in pairwise(path):
            parts.setdefault(outer, {}).setdefault(inner, []).extend(entities)
        parts.setdefault(path[-1], {})
    return {outer: list(inner.values()) for outer, inner in parts.items() if outer not in dirty}


def _whole(graph: Graph, inside: Ints) -> tuple[list[Ints], float]:
    """Return the coarsest clusters of the nodes with edges, and their modularity."""
    weights: Any = graph.weights if len(inside) == len(graph.entities) else graph.weights[inside][:, inside]
    label = clustered(weights, np.zeros(len(inside), dtype=np.int64), graph.entities[inside])
    return _grouped(inside, label), modularity(weights, label)


def _pieces(graph: Graph, parts: Sequence[Ints]) -> list[list[Ints]]:
    """Cluster each part on its own edges, all at once."""
    if not parts:
        return []
    inside, part = np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(one) for one in parts])
    between: Any = graph.weights[inside][:, inside].tocoo()
    same = part[between.row] == part[between.col]
    weights: Any = csr_array((between.data[same], (between.row[same], between.col[same])), shape=between.shape)
    label = clustered(weights, part, graph.entities[inside])
    found: list[list[Ints]] = [[] for _ in parts]
    for positions in _grouped(np.arange(len(inside)), label):
        found[part[positions[0]]].append(inside[positions])
    return found


def partition(entities: Ints, clusters: Clusters) -> Partition:
    """Return the communities of a clustering that was made elsewhere; an entity that it lacks is one of its own.

    Who shares the beginning of a path shares communities, as far as it goes: so they are nested, even if the levels of the
    clustering are not. A cluster that is all of the one around it is no community beside that one.
    """
    nodes = np.unique(entities)
    found = [clusters.paths.get(node, ()) for node in nodes.tolist()]
    width = max(map(len, found), default=0)
    labels = np.array([(*path, *[-1] * (width - len(path))) for path in found], dtype=np.int64).reshape(
        len(found), width
    )
    related = np.fromiter(map(bool, found), dtype=np.bool_, count=len(found))

    def apart(part: Ints) -> list[Ints]:
        differ = (labels[part] != labels[part[0]]).any(axis=0)
        return _grouped(part, labels[part, differ.argmax()]) if differ.any() else []

    def split(_: Sequence[Community], parts: Sequence[Ints]) -> Sequence[Sequence[Ints]]:
        return [apart(part) for part in parts]

    inside = np.flatnonzero(related)
    coarsest = _grouped(inside, labels[inside, 0]) if len(inside) else []
    return _nested(nodes, related, coarsest, split, clusters.modularity)


def _nested(
    nodes: Ints, related: NDArray[np.bool_], coarsest: Sequence[Ints], split: Split, quality: float
) -> Partition:
    """Split the coarsest clusters (positions of nodes) until nothing falls apart any more; the unrelated stay alone."""
    communities = [_lone(number) for number in nodes[~related].tolist()]
    paths: list[Path] = [()] * len(nodes)
    for node, community in zip(np.flatnonzero(~related).tolist(), communities, strict=True):
        paths[node] = (community.community_id,)
    todo: list[tuple[Ints, Path]] = [(part, ()) for part in coarsest]
    while todo:
        made = [_community(nodes[part], around) for part, around in todo]
        communities += made
        pieces = split(made, [part for part, _ in todo])
        following: list[tuple[Ints, Path]] = []
        for community, (part, around), inner in zip(made, todo, pieces, strict=True):
            path = (*around, community.community_id)
            if len(inner) > 1:
                following += [(one, path) for one in inner]
            else:
                for node in cast("list[int]", part.tolist()):
                    paths[node] = path
        todo = following
    communities.sort(key=attrgetter("level", "community_id"))
    return Partition(nodes, paths, communities, quality)


def _adjacency(nodes: Ints, edges: Ints) -> Any:
    """Return the symmetric matrix of weights between positions of nodes: no loops, parallel edges summed, sorted."""
    ends = np.searchsorted(nodes, edges[:, :2])
    known = np.zeros(len(edges), dtype=np.bool_)
    if len(nodes):
        known = (nodes[np.minimum(ends, len(nodes) - 1)] == edges[:, :2]).all(axis=1) & (ends[:, 0] != ends[:, 1])
    source, target, weight = ends[known, 0], ends[known, 1], edges[known, 2].astype(np.float64)
    both = (np.concatenate([source, target]), np.concatenate([target, source]))
    matrix: Any = csr_array((np.concatenate([weight, weight]), both), shape=(len(nodes), len(nodes)))
    matrix.sum_duplicates()
    return matrix


def _grouped(part: Ints, labels: Ints) -> list[Ints]:
    """Return the members of each label, in the order of labels; not for an empty part."""
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    return [part[positions] for positions in np.split(order, bounds)]


def _community(members: Ints, around: Path) -> Community:
    parent = CommunityId(around[-1]) if around else None
    return Community(_id(members), len(around), parent, cast("tuple[EntityNo, ...]", tuple(members.tolist())))


def recall(entities: Ints, stored: Mapping[int, tuple[int, ...]], max_cluster_size: int | None) -> Partition | None:
    """Return the partition of a graph whose edges did not change since its paths were stored, without clustering.

    An entity without a stored path is new and has no edges yet, so it is a community of its own. None if the paths
    cannot be those of this graph under this size limit (None: they were made elsewhere, without one); then it must be
    clustered.
    """
    nodes = np.unique(entities)
    paths = [stored.get(node) or (_id(nodes[[position]]),) for position, node in enumerate(nodes.tolist())]
    members: dict[tuple[int, int, int | None], list[int]] = {}
    for node, path in zip(nodes.tolist(), paths, strict=True):
        for level, community in enumerate(path):
            members.setdefault((level, community, path[level - 1] if level else None), []).append(node)
    split = {parent for _, _, parent in members}
    for (_, community, _), inside in members.items():
        if max_cluster_size is not None and (len(inside) > max_cluster_size) != (community in split):
            return None
        if community != _id(np.array(inside)):
            return None
    communities = [
        Community(CommunityId(community), level, _parent(parent), cast("tuple[EntityNo, ...]", tuple(inside)))
        for (level, community, parent), inside in sorted(members.items(), key=lambda item: item[0][:2])
    ]
    return Partition(nodes, paths, communities, None)


def _parent(community: int | None) -> CommunityId | None:
    return None if community is None else CommunityId(community)


def _lone(entity: int) -> Community:
    """Return the community of an entity without edges; there are many, so not by way of an array."""
    number = CommunityId(number_of("community", entity.to_bytes(8, "big").hex()))
    return Community(number, 0, None, (EntityNo(entity),))


def _id(members: Ints) -> CommunityId:
    """Return the id that follows from the ascending members alone."""
    return CommunityId(number_of("community", members.astype(">i8").tobytes().hex()))


def undescribed(partition: Partition, known: Collection[int], touched: Ints) -> list[Community]:
    """Return the communities that are not known by id, or have a touched member: others are called what they were."""
    places = np.searchsorted(partition.entities, touched)
    alive = places[partition.entities.take(places, mode="clip") == touched] if len(partition.entities) else places[:0]
    dirty = {community for place in cast("list[int]", alive.tolist()) for community in partition.paths[place]}
    return [one for one in partition.communities if one.community_id in dirty or one.community_id not in known]


def foremost(communities: Sequence[Community], graph: Graph, limit: int) -> Ints:
    """Return the entities that may be among the first `limit` of a community, by degree alone; each once, ascending."""
    found: set[int] = set()
    degrees = graph.degrees
    for one in communities:
        if len(one.members) <= limit:
            found.update(one.members)
            continue
        members = np.array(one.members, dtype=np.int64)
        own = degrees[np.searchsorted(graph.entities, members)]
        found.update(members[own >= np.partition(own, -limit)[-limit]].tolist())
    return np.array(sorted(found), dtype=np.int64)


def described(
    partition: Partition, graph: Graph, anew: Sequence[Community], labels: Labels, known: Mapping[int, tuple[str, str]]
) -> list[Community]:
    """Return the communities with names and offline summaries: those `anew`, whose foremost members the `labels` are of, and
    others as they are known.

    A community is named by its best-connected member (degree descending, name, id). The summary counts the members and
    names the first five.
    """
    leaders = leading(anew, graph, labels, labels.shown, LEADERS)
    fresh = {
        c.community_id: (names[0], offline_summary(len(c.members), names))
        for c, names in zip(anew, leaders, strict=True)
    }
    return [
        Community(c.community_id, c.level, c.parent, c.members, *(fresh.get(c.community_id) or known[c.community_id]))
        for c in partition.communities
    ]


def leading(
    communities: Sequence[Community], graph: Graph, labels: Labels, lines: Sequence[str], limit: int
) -> list[list[str]]:
    """Return the lines of each community's first members, best-connected first; `lines` belong to `labels`, which need to be of
    the `foremost` alone.
    """
    degrees = graph.degrees[np.searchsorted(graph.entities, labels.entities)].tolist()
    keys = list(zip([-degree for degree in degrees], labels.shown, labels.ids, strict=True))
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys))
    found: list[list[str]] = []
    for one in communities:
        members = np.array(one.members, dtype=np.int64)
        places = np.searchsorted(labels.entities, members)
        labelled = places[labels.entities.take(places, mode="clip") == members]
        first = cast("list[int]", order[np.sort(rank[labelled])[:limit]].tolist())
        found.append([lines[at] for at in first])
    return found


def offline_summary(size: int, leaders: Sequence[str]) -> str:
    """Return e.g. `7 related entities around Ada: Ada, Babbage, Byron, Turing, Hopper, +2 more`."""
    more = f", +{size - len(leaders)} more" if size > len(leaders) else ""
    return f"{size} related entities around {leaders[0]}: {', '.join(leaders)}{more}"
