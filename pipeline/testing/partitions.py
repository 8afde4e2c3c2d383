"""How good a partition of a graph is, and how far two of them agree."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def modularity(entities: Ints, edges: Ints, labels: Sequence[Hashable]) -> float:
    """Return the modularity of `labels`, which belong to the distinct `entities`; 0 without edges.

    Q = sum over communities of w_in / m - (d / 2m)^2, with m the weight of all edges, w_in of those inside a community, and d
    the sum of its members' weighted degrees (Newman and Girvan 2004, doi:10.1103/PhysRevE.69.026113). `edges` are (n, 3):
    source, target, weight; undirected, repeated ones add up; loops and those to strangers are left out.
    """
    label = dict(zip(cast("list[int]", entities.tolist()), _numbered(labels).tolist(), strict=True))
    known = [(label[s], label[t], w) for s, t, w in edges.tolist() if s != t and s in label and t in label]
    source, target, weight = np.array(known, dtype=np.float64).reshape(-1, 3).T
    total = weight.sum()
    if not total:
        return 0.0
    ends = np.concatenate([source, target]).astype(np.int64)
    degrees = np.bincount(ends, weights=np.concatenate([weight, weight]))
    return float(weight[source == target].sum() / total - ((degrees / (2 * total)) ** 2).sum())


def adjusted_rand(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return how far two labellings of the same things agree: 1 is equality, 0 what chance would give.

    (index - expected) / (maximum - expected), the index being the number of pairs that are together in both (Hubert and
    Arabie 1985, doi:10.1007/BF01908075).
    """
    one, two = _numbered(first), _numbered(second)
    if len(one) != len(two):
        raise ValueError("both must label the same things")
    joint = _pairs(_numbered(list(zip(one.tolist(), two.tolist(), strict=True))))
    rows, columns, everything = _pairs(one), _pairs(two), len(one) * (len(one) - 1) / 2
    expected = rows * columns / everything if everything else 0.0
    maximum = (rows + columns) / 2
    return 1.0 if maximum == expected else (joint - expected) / (maximum - expected)


def _numbered(labels: Sequence[Hashable]) -> Ints:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)


def _pairs(numbers: Ints) -> float:
    """Return the number of pairs that share a number."""
    sizes = np.bincount(numbers)
    return float((sizes * (sizes - 1) / 2).sum())
