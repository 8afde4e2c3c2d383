"""Leiden with modularity, on arrays, so that a small change of a graph makes a small change of its clusters.

After Traag, Waltman and van Eck 2019 (doi:10.1038/s41598-019-41695-z): nodes move to the cluster next to them that gains most,
clusters are refined from within, each part becomes a node, and so on until nothing moves. Whatever that algorithm draws by
chance follows here from the numbers of nodes, which are hashes: a draw that depends on how many nodes there are, or on what
was drawn before, gives another clustering altogether for one node more. Nodes are asked at once, those of one class of
numbers after those of another, as in parallel Louvain methods (Lu, Halappanavar and Kalyanaraman 2015,
doi:10.1016/j.parco.2015.03.003).

Sums of weights are whole numbers: exact in doubles while the square of the graph's weight is below 2^53, and the same on
every machine in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CLASSES = 4
"""Of nodes: those of one are asked at once, so that two neighbours seldom swap places."""

SWEEPS = 32
"""Bound on how often all nodes are asked in turn; few need more than ten, as only who has a new neighbour is asked again."""

REFINING = (False, True)
"""The whole is done twice, the second time from the clusters of the first, whose nodes find what they missed. Refined it needs to
be the second time alone: that is better and quicker than twice or once.
"""


@dataclass(frozen=True, slots=True)
class _Network:
    """Nodes, each of which may stand for several: their symmetric `weights` without loops, sorted; by node the sum of the
    weights of all that it stands for, that of all its part, its part, and the number of one that it stands for.
    """

    weights: Any
    own: Floats
    whole: Floats
    part: Ints
    numbers: NDArray[np.uint64]


def clustered(weights: Any, part: Ints, numbers: Ints) -> Ints:
    """Return for each node the smallest position of a node in its cluster.

    `weights` is a symmetric sparse matrix in rows, whole numbers above zero, no loops, none between parts; `part` gives each
    node's part, from 0 on, and `numbers` its number. Each part is clustered as if it were alone, by its own modularity.
    """
    if not len(part):
        return part
    strength = _sums(_rows(weights), weights.data, weights.shape[0])
    whole = _sums(part, strength, int(part.max()) + 1)[part]
    network = _Network(weights, strength, whole, part, numbers.astype(np.uint64))
    label = np.arange(len(part))
    for refining in REFINING:
        label = _round(network, label, refining)
    return label


def modularity(weights: Any, label: Ints) -> float:
    """Return the modularity of a clustering; 0 without edges."""
    total = weights.data.sum()
    if not total:
        return 0.0
    row = _rows(weights)
    inside = weights.data[label[row] == label[weights.indices]].sum()
    return float(inside / total - (np.bincount(label[row], weights.data) ** 2).sum() / total**2)


def _round(network: _Network, label: Ints, refining: bool) -> Ints:
    """Move, refine if so asked, and merge until every cluster is one node."""
    where = np.arange(len(label))
    while True:
        moved = _moved(network, label, _linked(network), SWEEPS)
        label = _smallest(_connected(network.weights, label))
        if (label == np.arange(len(label))).all():
            return _smallest(where)
        inner = _refined(network, label, moved) if refining else label
        first = np.flatnonzero(inner == np.arange(len(inner)))
        network, place = _merged(network, inner, first)
        where, label = place[where], place[label[first]]


def _refined(network: _Network, label: Ints, moved: Flags) -> Ints:
    """Return the clusters of nodes within the clusters; these themselves in parts that are settled or would stay as they are."""
    alone = np.arange(len(label))
    inner = alone.copy()
    inside = replace(network, weights=_inside(network.weights, label))
    _moved(inside, inner, moved[network.part] & _linked(inside), 1)
    inner = _smallest(_connected(inside.weights, inner))
    merged = np.zeros(len(moved), dtype=np.bool_)
    merged[network.part[inner != alone]] = True
    return np.where(merged[network.part], inner, label)


def _moved(network: _Network, label: Ints, active: Flags, sweeps: int) -> Flags:
    """Move active nodes, and who is next to one that moved, until none gains by it; return the parts in which one moved. Changes
    `label` and `active`.
    """
    count = len(label)
    sums = _sums(label, network.own, count)
    moved = np.zeros(int(network.part.max()) + 1, dtype=np.bool_)
    for sweep in range(sweeps):
        todo = np.flatnonzero(active)
        if not len(todo):
            break
        classes = _mixed(network.numbers[todo], sweep) % CLASSES
        for one in range(CLASSES):
            asked = todo[classes == one]
            if not len(asked):
                continue
            active[asked] = False
            nodes, to = _better(network, label, sums, asked)
            if not len(nodes):
                continue
            sums -= _sums(label[nodes], network.own[nodes], count)
            label[nodes] = to
            sums += _sums(to, network.own[nodes], count)
            moved[network.part[nodes]] = True
            links: Any = network.weights[nodes]
            near = links.indices
            active[near[label[near] != np.repeat(to, np.diff(links.indptr))]] = True
    return moved


def _better(network: _Network, label: Ints, sums: Floats, asked: Ints) -> tuple[Ints, Ints]:
    """Return which of the nodes that are asked gain by moving, and to which cluster: the one that gives most, the first of
    equals.

    All is times the square of the part's weight: a node of weight k gains whole * w - k * K by being in a cluster of weight K
    besides it, to which edges of weight w lead; alone it gains 0.
    """
    count = len(label)
    belongs: Any = csr_array((np.ones(count), label, np.arange(count + 1)), shape=(count, count))
    links: Any = network.weights[asked] @ belongs
    to, counts = links.indices, np.diff(links.indptr)
    own, home = network.own[asked], label[asked]
    each = np.repeat(own, counts)
    gain = np.repeat(network.whole[asked], counts) * links.data - each * sums[to]
    at_home = np.flatnonzero(to == np.repeat(home, counts))
    gain[at_home] += each[at_home] ** 2
    now = own * (own - sums[home])
    now[np.searchsorted(links.indptr, at_home, side="right") - 1] = gain[at_home]
    most = np.maximum.reduceat(gain, links.indptr[:-1])
    wanted = np.where(most > np.maximum(now, 0), most, np.inf)
    chosen = np.flatnonzero(gain == np.repeat(wanted, counts))
    row = np.searchsorted(links.indptr, chosen, side="right") - 1
    order = np.lexsort((to[chosen], row))
    first = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
    return asked[row[first]], to[chosen[first]].astype(np.int64)


def _merged(network: _Network, label: Ints, first: Ints) -> tuple[_Network, Ints]:
    """Return the network whose nodes are the clusters, in the order of their `first` nodes, and the new place of each node."""
    place = np.searchsorted(first, label)
    source, target = place[_rows(network.weights)], place[network.weights.indices]
    apart = source != target
    shape = (len(first), len(first))
    weights: Any = csr_array((network.weights.data[apart], (source[apart], target[apart])), shape=shape)
    weights.sum_duplicates()
    own = _sums(place, network.own, len(first))
    return _Network(weights, own, network.whole[first], network.part[first], network.numbers[first]), place


def _linked(network: _Network) -> Flags:
    """Which nodes have edges."""
    linked: Flags = np.diff(network.weights.indptr) > 0
    return linked


def _inside(weights: Any, label: Ints) -> Any:
    """Return the entries between nodes of one cluster alone."""
    row = _rows(weights)
    same = label[row] == label[weights.indices]
    return csr_array((weights.data[same], (row[same], weights.indices[same])), shape=weights.shape)


def _connected(weights: Any, label: Ints) -> Ints:
    """Return labels of the connected pieces of clusters: who moved away may have held one together."""
    return connected_components(_inside(weights, label), directed=False)[1].astype(np.int64)


def _smallest(label: Ints) -> Ints:
    """Name clusters by the smallest position in them."""
    _, first, place = np.unique(label, return_index=True, return_inverse=True)
    named: Ints = first[place]
    return named


def _sums(place: Ints, values: Floats, count: int) -> Floats:
    """Return the sum of the values of each place from 0 on."""
    return np.bincount(place, values, count).astype(np.float64)


def _rows(weights: Any) -> Ints:
    """Return the row of each entry."""
    counts: Ints = np.diff(weights.indptr)
    return np.repeat(np.arange(len(counts)), counts)


def _mixed(numbers: NDArray[np.uint64], turn: int) -> NDArray[np.uint64]:
    """Hash numbers, in each turn otherwise: the last steps of splitmix64 (doi:10.1145/2714064.2660195)."""
    mixed = numbers + np.uint64(turn)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
