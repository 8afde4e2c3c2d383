"""Graphs that a tenant has published for agents to ask, as people and programs see them."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from schemas.exposed import GraphSchema
from schemas.query import Wire

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""What the name of a published graph looks like."""


class GraphLimits(Wire):
    """What one question may cost. `page_size` is that of a page which names none; `deadline` is in seconds.

    `steps` are the matches that are looked at, at most: what is cut off by them is said to be.
    """

    page_size: int = Field(default=20, ge=1, le=9999)
    max_page_size: int = Field(default=100, ge=1, le=9999)
    max_hops: int = Field(default=3, ge=1, le=16)
    deadline: float = Field(default=10.0, gt=0, le=3600)
    steps: int = Field(default=1_000_000, ge=1, le=1_000_000_000)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.page_size > self.max_page_size:
            raise ValueError("page_size must be at most max_page_size")
        return self


class Publication(Wire):
    """What is published: a corpus, seen through an allow-list, within limits; `description` tells agents what is in it.

    With `demand_disclosure` the types of a query must have been described first, as a token then proves.
    """

    corpus: str = Field(min_length=1, max_length=100)
    description: str = Field(default="", max_length=1000)
    graph_schema: GraphSchema
    limits: GraphLimits = GraphLimits()
    demand_disclosure: bool = False


class PublishedGraph(Publication):
    """A publication under its name. Times are UTC ISO strings."""

    name: str
    created_at: str
    updated_at: str
