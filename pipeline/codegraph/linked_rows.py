"""From what linking a file gave to the rows that it becomes, and how these differ from the stored ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.codegraph.conversation import EXTERNAL, Reference, Settled
from pipeline.codegraph.entities import home, module_mention
from pipeline.codegraph.files import joined
from pipeline.codegraph.links import Handed
from schemas.graph import Mention, Scalar
from schemas.ids import entity_no

EdgeKey = tuple[int, int, int, str]
"""Chunk, source, target, type. What else an edge is stored with is the line of its evidence."""

Sent = tuple[str, Handed]
"""What is handed over, with the file that it goes to."""


@dataclass(frozen=True, slots=True)
class ChunkLines:
    """The chunks of a file in order: their numbers and their last lines."""

    chunks: Sequence[int] = ()
    ends: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class FileRows:
    """All rows that linking gives a file: edges, what it mentions without defining it, by chunk and entity, and so on."""

    edges: Mapping[EdgeKey, int] = field(default_factory=dict[EdgeKey, int])
    references: Mapping[tuple[int, int], Mention | None] = field(default_factory=dict[tuple[int, int], Mention | None])
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    unresolved: Mapping[str, int] = field(default_factory=dict[str, int])
    reads: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    handed: frozenset[Sent] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """What is to be written. `links` have the counts of files anew, those in `ended_links` had others before; `renewed` are
    chunks that mention other entities than before.
    """

    edges: list[tuple[str, EdgeKey, int]] = field(default_factory=list[tuple[str, EdgeKey, int]])
    ended_edges: list[EdgeKey] = field(default_factory=list[EdgeKey])
    references: list[tuple[int, int, Mention]] = field(default_factory=list[tuple[int, int, Mention]])
    ended_references: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    renewed: set[int] = field(default_factory=set[int])
    links: list[tuple[str, Mapping[str, int], Mapping[str, int]]] = field(
        default_factory=list[tuple[str, Mapping[str, int], Mapping[str, int]]]
    )
    ended_links: list[str] = field(default_factory=list[str])
    reads: list[tuple[str, int, bytes]] = field(default_factory=list[tuple[str, int, bytes]])
    ended_reads: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    handed: list[tuple[str, Sent]] = field(default_factory=list[tuple[str, Sent]])
    ended_handed: list[tuple[str, Sent]] = field(default_factory=list[tuple[str, Sent]])

    @property
    def rows(self) -> int:
        """How many rows come and go, chunks that begin anew apart."""
        return sum(
            len(part)
            for part in (
                self.edges, self.ended_edges, self.references, self.ended_references, self.links, self.ended_links,
                self.reads, self.ended_reads, self.handed, self.ended_handed,
            )
        )  # fmt: skip


def rows_of(alone: Settled, final: Settled, lines: ChunkLines) -> FileRows:
    """Return the rows of one file, linked by itself and with what it receives."""
    edges: dict[EdgeKey, int] = {}
    mentions: dict[tuple[int, int], Mention | None] = {}
    for one in final.references if lines.chunks else ():
        chunk, target = lines.chunks[home(lines.ends, one.line)], entity_no(one.target)
        edges[chunk, entity_no(one.source), target, one.kind] = one.line
        if one.outside:
            mentions[chunk, target] = mention_of(one)
    reads = joined(alone.reads, final.reads)
    return FileRows(edges, mentions, final.counts, final.unresolved, reads, frozenset(alone.handed))


def mention_of(one: Reference) -> Mention:
    """Return the target of a reference as it is mentioned where it is referred to."""
    if one.outside != EXTERNAL:
        return module_mention(one.target, one.outside)
    name = one.target.removeprefix(f"{EXTERNAL}::")
    properties: dict[str, Scalar] = {"kind": EXTERNAL, "qualname": name, "source": "ast"}
    return Mention(name, EXTERNAL, properties=properties, identity=one.target)


def compare(path: str, new: FileRows, old: FileRows, difference: Difference, *, fresh: bool) -> None:
    """Add to a difference what separates the stored rows of a file from its new ones. `fresh`: the number bore the file."""
    difference.ended_edges.extend(key for key, line in old.edges.items() if new.edges.get(key) != line)
    difference.edges.extend((path, key, line) for key, line in new.edges.items() if old.edges.get(key) != line)
    difference.ended_references.extend(old.references.keys() - new.references.keys())
    for (chunk, number), mention in new.references.items():
        if mention is not None and (chunk, number) not in old.references:
            difference.references.append((chunk, number, mention))
    if not fresh:
        difference.renewed.update(chunk for chunk, _ in new.references.keys() ^ old.references.keys())
    if fresh or (new.counts, new.unresolved) != (old.counts, old.unresolved):
        difference.links.append((path, new.counts, new.unresolved))
        difference.ended_links.append(path)
    difference.reads.extend((path, number, asked) for number, asked in sorted(new.reads.items() - old.reads.items()))
    difference.ended_reads.extend((path, number) for number, _ in sorted(old.reads.items() - new.reads.items()))
    difference.handed.extend((path, one) for one in sorted(new.handed - old.handed))
    difference.ended_handed.extend((path, one) for one in sorted(old.handed - new.handed))
