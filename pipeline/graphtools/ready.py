"""Allow-lists that are ready to be published, by name."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType

_INT64, _DOUBLE = PropertyType.INT64, PropertyType.DOUBLE
_NAME = ExposedProperty(
    name="name", description="The simple name; of a module its path, of what is outside its dotted name."
)
_QUALNAME = ExposedProperty(name="qualname", description="The name within its module, joined by points: Store.add.")
_PLACE = (
    ExposedProperty(name="path", description="The file, relative to the corpus."),
    ExposedProperty(name="language"),
    ExposedProperty(name="start_line", type=_INT64),
    ExposedProperty(name="end_line", type=_INT64),
    ExposedProperty(name="doc", stored="description", description="The first line of its documentation."),
)
_DEFINED = (
    _NAME,
    _QUALNAME,
    *_PLACE,
    ExposedProperty(name="signature", description="The first line of the definition."),
    ExposedProperty(name="decorators", description="Joined by commas."),
)
_STATED = (
    ExposedProperty(name="path", description="The file that states it."),
    ExposedProperty(name="line", type=_INT64, description="The line that states it."),
    ExposedProperty(name="weight", type=_DOUBLE),
)
_KINDS = {
    "Module": ("A source file.", (_NAME, *_PLACE)),
    "Class": ("A class.", _DEFINED),
    "Function": ("A function that is no member of a type.", _DEFINED),
    "Method": ("A function of a type.", _DEFINED),
    "Interface": ("An interface.", _DEFINED),
    "Enum": ("An enumeration.", _DEFINED),
    "Struct": ("A struct.", _DEFINED),
    "Trait": ("A trait.", _DEFINED),
    "External": ("Something outside of the corpus that is referred to, by its dotted name.", (_NAME, _QUALNAME)),
}
_EDGES = {
    "CONTAINS": "A module or definition contains a definition.",
    "IMPORTS": "A module imports another.",
    "INHERITS": "A type inherits from, implements or extends another.",
    "CALLS": "A function, or the code of a module, calls a function or constructs a class.",
}

CODE = GraphSchema(
    id="sapwood-code",
    version="1",
    display_name="Source code",
    description="Modules and definitions of source code, and what they contain, import, inherit from and call.",
    node_types=tuple(
        NodeType(label=label, description=said, properties=properties, stored=(label.lower(),))
        for label, (said, properties) in _KINDS.items()
    ),
    edge_types=tuple(
        EdgeType(type=kind, description=said, properties=_STATED, stored=(kind.lower(),))
        for kind, said in _EDGES.items()
    ),
)

READY: Mapping[str, GraphSchema] = {"code": CODE}
