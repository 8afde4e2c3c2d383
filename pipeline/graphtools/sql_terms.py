"""What a plan asks of single properties, in PostgreSQL's terms: stored values by their types, and conditions of them.

Texts hold only what this module spells: names of columns, operators, casts. Values, types of the schema and names of
extracted properties are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pipeline.graphtools.plan import Both, Condition, Not, Predicate, Property
from pipeline.graphtools.query import Joining, Operator, Value
from pipeline.graphtools.values import DATE_FORM, DATETIME_FORM, FULL, LEAST_INT, MOST_INT, comparable, conjuncts
from schemas.exposed import PropertyType

CASTS = {
    PropertyType.STRING: "text",
    PropertyType.BOOLEAN: "boolean",
    PropertyType.INT64: "bigint",
    PropertyType.DOUBLE: "float8",
    PropertyType.DATE: "text",
    PropertyType.DATETIME: "text",
}

ENTITY = {
    "name": PropertyType.STRING,
    "description": PropertyType.STRING,
    "mentions": PropertyType.INT64,
    "chunks": PropertyType.INT64,
}
"""The stored properties of an entity that are columns; all others are in `properties`."""

RELATION = {"weight": PropertyType.DOUBLE, "evidence": PropertyType.INT64}
"""Those of a relation."""

_FORMS = {PropertyType.DATE: DATE_FORM, PropertyType.DATETIME: DATETIME_FORM}
_MOST_DOUBLE = "1.7976931348623157e308"

_COMPARISONS = {Operator.EQ, Operator.NE, Operator.GT, Operator.GE, Operator.LT, Operator.LE}
_TEXTS = {
    Operator.CONTAINS: "strpos({text}, {part}) > 0",
    Operator.STARTS_WITH: "starts_with({text}, {part})",
    Operator.ENDS_WITH: "right({text}, length({part})) = {part}",
}


class Parameters:
    """The values of a statement, in the order of their numbers."""

    def __init__(self, *values: object) -> None:
        self._values = list(values)

    @property
    def values(self) -> tuple[object, ...]:
        """All values."""
        return tuple(self._values)

    def add(self, value: object, cast: str) -> str:
        """Return what stands for a value of this type in the text."""
        self._values.append(value)
        return f"${len(self._values)}::{cast}"


def conforming(alias: str, wanted: Property, parameters: Parameters) -> str:
    """Return a property of an entity or relation as `values.conform` does: null if it is not of its type."""
    columns = RELATION if wanted.element % 2 else ENTITY
    if wanted.stored in columns:
        return _of_column(f"{alias}.{wanted.stored}", columns[wanted.stored], wanted.type)
    return _extracted(f"{alias}.properties", parameters.add(wanted.stored, "text"), wanted.type)


def compared(value: str, kind: PropertyType) -> str:
    """Return what a conforming value is compared and grouped by, as `values.comparable` does."""
    if kind is PropertyType.DATETIME:
        return f"left({value} || substr('{FULL}', length({value}) + 1), {len(FULL)})"
    return value


def collated(value: str, kind: PropertyType) -> str:
    """Return a value whose order is that of the language: texts by code points."""
    return f'({value} collate "C")' if CASTS[kind] == "text" else value


def _of_column(column: str, stored: PropertyType, kind: PropertyType) -> str:
    if kind in _FORMS and stored is PropertyType.STRING:
        return f"case when {_formed(column, kind)} then {column} end"
    if kind is stored or (kind, stored) == (PropertyType.DOUBLE, PropertyType.INT64):
        return f"{column}::{CASTS[kind]}"
    return f"null::{CASTS[kind]}"


def _extracted(properties: str, name: str, kind: PropertyType) -> str:
    """Return an extracted property. CASE keeps the casts from values that they would fail on."""
    found, text = f"({properties} -> {name})", f"({properties} ->> {name})"
    match kind:
        case PropertyType.STRING:
            return f"case jsonb_typeof({found}) when 'string' then {text} end"
        case PropertyType.DATE | PropertyType.DATETIME:
            return f"case when jsonb_typeof({found}) = 'string' and {_formed(text, kind)} then {text} end"
        case PropertyType.BOOLEAN:
            return f"case jsonb_typeof({found}) when 'boolean' then {found}::boolean end"
        case PropertyType.INT64:
            whole = f"scale({found}::numeric) = 0 and {found}::numeric between {LEAST_INT} and {MOST_INT}"
            inner = f"case when {whole} then {found}::bigint end"
        case PropertyType.DOUBLE:
            inner = f"case when abs({found}::numeric) <= {_MOST_DOUBLE} then {found}::float8 end"
    return f"case jsonb_typeof({found}) when 'number' then {inner} end"


def _formed(text: str, kind: PropertyType) -> str:
    return f"""{text} collate "C" ~ '^(?:{_FORMS[kind]})$'"""


Reads = Callable[[Property], str]
"""Returns the text of a property as it is compared."""


def condition(asked: Condition, read: Reads, parameters: Parameters) -> str:
    """Return a condition. Its truth values are SQL's own, which are Cypher's."""
    match asked:
        case Not(inner):
            return f"not {condition(inner, read, parameters)}"
        case Both(Joining.AND):
            return f"({' and '.join(condition(one, read, parameters) for one in conjuncts(asked))})"
        case Both(_, left, right):
            return f"({condition(left, read, parameters)} or {condition(right, read, parameters)})"
        case Predicate():
            return f"({_predicate(asked, read(asked.property), parameters)})"


def _predicate(asked: Predicate, value: str, parameters: Parameters) -> str:
    kind, operator = asked.property.type, asked.operator
    wanted = [comparable(one, kind) for one in asked.values]
    match operator:
        case Operator.IS_NULL | Operator.IS_NOT_NULL:
            return f"{value} {operator.lower()}"
        case Operator.IN | Operator.NOT_IN:
            listed = parameters.add(wanted, f"{CASTS[kind]}[]")
            return f"{value} = any({listed})" if operator is Operator.IN else f"{value} <> all({listed})"
        case Operator.BETWEEN:
            least, most = (parameters.add(one, CASTS[kind]) for one in wanted)
            text = collated(value, kind)
            return f"{text} >= {least} and {text} <= {most}"
        case operator if operator in _COMPARISONS:
            equality = operator in (Operator.EQ, Operator.NE)
            # Texts are equal in any order alike; bare columns are what indexes answer for.
            left = value if equality else collated(value, kind)
            return f"{left} {operator.value} {parameters.add(wanted[0], CASTS[kind])}"
        case _:
            return _text_predicate(asked, value, wanted[0], parameters)


def _text_predicate(asked: Predicate, value: str, part: Value, parameters: Parameters) -> str:
    if asked.property.type is not PropertyType.STRING or asked.operator not in _TEXTS:
        return f"case when {value} is null then null::boolean end"  # unknown, whatever the value
    text = collated(value, PropertyType.STRING)
    return _TEXTS[asked.operator].format(text=text, part=parameters.add(part, "text"))


def predicates(asked: Condition) -> Iterator[Predicate]:
    """Yield all predicates of a condition."""
    match asked:
        case Not(inner):
            yield from predicates(inner)
        case Both(_, left, right):
            yield from predicates(left)
            yield from predicates(right)
        case Predicate():
            yield asked


def residual(asked: Condition) -> bool:
    """Whether a condition asks for a regular expression, of which PostgreSQL has another idea than RE2."""
    return any(
        one.operator is Operator.REGEX and one.property.type is PropertyType.STRING and one.values != (None,)
        for one in predicates(asked)
    )
