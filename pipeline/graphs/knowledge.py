"""Live triples: tools with which an agent keeps facts in this process, and the union of all that is kept."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal
from weakref import WeakValueDictionary

from pydantic import Field, ValidationError

from pipeline.errors import InvalidRequest
from pipeline.graphs.bag import MAX_CHARS, Bag, Triple, entity_key, search, tidy
from schemas.query import Wire

MAX_TRIPLES = 100_000
"""Triples of one instance at most, unless it is made for fewer."""

MAX_RESULTS = 100
"""What one call of a tool returns at most."""

Result = dict[str, object]
"""JSON-able: strings, numbers, booleans, lists and dicts of these."""


class KnowledgeTools:
    """A bag of triples with the tools that change and read it.

    The tools see this instance only. Retrieval sees all live instances, at the moment it happens; an instance that nobody
    holds any more is gone from it. Methods may be called from any thread or task: none waits for more than a lookup.
    """

    def __init__(self, max_triples: int = MAX_TRIPLES) -> None:
        self._bag = Bag(max_triples)
        _live[next(_serials)] = self._bag  # nobody else holds it

    def kg_add_triple(self, subject: str, predicate: str, object: str) -> Result:
        """Keep a triple; `added` is false if it was there. Raises InvalidRequest naming the limit that it breaks."""
        added = self._bag.add(Triple.of(subject, predicate, object))
        return {"added": added, "triples": len(self._bag)}

    def kg_remove_triple(self, subject: str, predicate: str, object: str) -> Result:
        """Forget a triple; `removed` is false if it was not there. Raises InvalidRequest if it can be none."""
        removed = self._bag.remove(Triple.of(subject, predicate, object))
        return {"removed": removed, "triples": len(self._bag)}

    def kg_query(self, query: str, limit: int = 10) -> Result:
        """Return the triples that share words with the query, best first; only ASCII letters and digits make words."""
        found = search([self._bag], query, _checked(limit))
        return {"matches": [{**triple._asdict(), "score": score} for triple, score in found]}

    def kg_neighbors(self, entity: str, limit: int = 10) -> Result:
        """Return what stands at the other end of the triples of an entity, oldest first; `total` counts them all.

        Spellings with the same identity key are one entity. `direction` is `out` where the entity is the subject.
        """
        entity = tidy(entity)
        triples, key = self._bag.about(entity), entity_key(entity)
        ends = [
            {"predicate": one.predicate, "direction": "out", "entity": one.object}
            if entity_key(one.subject) == key
            else {"predicate": one.predicate, "direction": "in", "entity": one.subject}
            for one in triples[: _checked(limit)]
        ]
        return {"entity": entity, "neighbors": ends, "total": len(triples)}

    def triples(self) -> list[Triple]:
        """Return what is kept in this instance, oldest first, as of one moment."""
        return self._bag.triples()

    def call(self, name: str, arguments: object) -> Result:
        """Run a tool as a model asks for it: by name, with a mapping of arguments or its JSON text.

        What is wrong with a call is no exception but `{"error": {"code", "message"}}`, worded for the model.
        """
        tool = _TOOLS.get(name)
        if tool is None:
            return _error("unknown_tool", f"There is no tool {name!r}; there are {', '.join(_TOOLS)}.")
        try:
            if isinstance(arguments, str | bytes):
                return tool.model_validate_json(arguments).run(self)
            return tool.model_validate(arguments).run(self)
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()]
            return _error("invalid_arguments", "; ".join(lines))
        except InvalidRequest as error:
            return _error("invalid_arguments", str(error))


_live: WeakValueDictionary[int, Bag] = WeakValueDictionary()
_serials = itertools.count()


def search_live(query: str, limit: int, keep: Callable[[Triple], bool] | None = None) -> list[tuple[Triple, float]]:
    """Search the union of all live instances, as `bag.search` does: the triples themselves, no copy made before."""
    bags = [bag for reference in _live.valuerefs() if (bag := reference()) is not None]
    return search(bags, query, limit, keep)


def tool_schemas(shape: Literal["openai", "anthropic"] = "openai") -> list[dict[str, object]]:
    """Return the definitions of the tools as the APIs of these names take them."""
    return [_definition(name, tool, shape) for name, tool in _TOOLS.items()]


class _Arguments(Wire, ABC):
    """The arguments of a tool; the docstring of each kind is what a model reads about the tool."""

    @abstractmethod
    def run(self, tools: KnowledgeTools) -> Result:
        """Call the tool."""


class _Fact(_Arguments, ABC):
    subject: str = Field(max_length=MAX_CHARS, description="Whom or what the fact is about, as a name.")
    predicate: str = Field(
        max_length=MAX_CHARS, description="What relates subject and object, for example 'works for'."
    )
    object: str = Field(max_length=MAX_CHARS, description="The name or value that the subject is related to.")


class _AddTriple(_Fact):
    """Remember one fact as a triple of subject, predicate and object. Adding a known fact again changes nothing."""

    def run(self, tools: KnowledgeTools) -> Result:
        return tools.kg_add_triple(self.subject, self.predicate, self.object)


class _RemoveTriple(_Fact):
    """Forget one fact. All three parts must be given exactly as they were added."""

    def run(self, tools: KnowledgeTools) -> Result:
        return tools.kg_remove_triple(self.subject, self.predicate, self.object)


_Limit = Field(default=10, ge=1, le=MAX_RESULTS, description="How many results to return at most.")


class _Query(_Arguments):
    """Find remembered facts that share words with a query, best match first."""

    query: str = Field(max_length=20_000, description="Words to look for, for example 'Ada engine'.")
    limit: int = _Limit

    def run(self, tools: KnowledgeTools) -> Result:
        return tools.kg_query(self.query, self.limit)


class _Neighbors(_Arguments):
    """List what an entity is directly related to by remembered facts, in either direction."""

    entity: str = Field(max_length=MAX_CHARS, description="The name of the entity; case and punctuation do not matter.")
    limit: int = _Limit

    def run(self, tools: KnowledgeTools) -> Result:
        return tools.kg_neighbors(self.entity, self.limit)


_TOOLS: Mapping[str, type[_Arguments]] = {
    "kg_add_triple": _AddTriple,
    "kg_remove_triple": _RemoveTriple,
    "kg_query": _Query,
    "kg_neighbors": _Neighbors,
}


def _definition(name: str, tool: type[_Arguments], shape: Literal["openai", "anthropic"]) -> dict[str, object]:
    full = tool.model_json_schema()
    fields = {field: {k: v for k, v in one.items() if k != "title"} for field, one in full["properties"].items()}
    schema = {
        "type": "object",
        "properties": fields,
        "required": full["required"],
        "additionalProperties": False,
    }
    if shape == "anthropic":
        return {"name": name, "description": full["description"], "input_schema": schema}
    function = {"name": name, "description": full["description"], "parameters": schema}
    return {"type": "function", "function": function}


def _checked(limit: int) -> int:
    if not 1 <= limit <= MAX_RESULTS:
        raise InvalidRequest(f"limit must be between 1 and {MAX_RESULTS}")
    return limit


def _error(code: str, message: str) -> Result:
    return {"error": {"code": code, "message": message}}
