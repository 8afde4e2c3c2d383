"""Declarations of JavaScript and TypeScript: variables, functions, classes, types, namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.javascript.definitions import (
    Naming,
    class_form,
    enum_form,
    interface_form,
    named,
    named_function,
    namespace_form,
)
from pipeline.codegraph.javascript.functions import FUNCTION_VALUES, annotation, bind, qualified, type_form
from pipeline.codegraph.javascript.prototypes import class_of_function
from pipeline.codegraph.javascript.reader import FUNCTIONS, PATTERNS, UNKNOWN, Reader, declaration_of, names_in
from pipeline.codegraph.summary import Assign, Define, Expression, Lambda, Name, Walrus

if TYPE_CHECKING:
    from tree_sitter import Node


def whole_of(node: Node) -> Node:
    """Return the statement that a declaration is in, with `export` and `declare`."""
    parent = node.parent
    while parent is not None and parent.type in ("export_statement", "ambient_declaration"):
        node, parent = parent, parent.parent
    return node


def variables_declared(reader: Reader, node: Node) -> None:
    """Add what `const`, `let` and `var` declare."""
    declarators = [child for child in node.named_children if child.type == "variable_declarator"]
    is_var = node.type == "variable_declaration"
    for declarator in declarators:
        pattern, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        if pattern is None:
            continue
        type_of = annotation(reader, declarator.child_by_field_name("type"))
        for name in names_in(pattern):
            reader.declare(reader.source.text(name), var=is_var)
        if pattern.type in PATTERNS:
            if value is not None:
                bind(reader, pattern, reader.expression(value), type_of)
            continue
        name_text = reader.source.text(pattern)
        inside = reader.lookup(name_text) if name_text else reader.hidden("missing")
        whole = whole_of(node) if len(declarators) == 1 else declarator
        naming = Naming(reader.scope, name_text, "class" if _is_class(value) else "function", whole, inside)
        if value is None:
            if type_of is not None or not is_var:
                reader.out.append(Assign((inside,), None, type_of))
        elif value.type not in FUNCTION_VALUES or not class_of_function(reader, value, naming):
            assign(reader, [inside], named(reader, value, naming), type_of)


def _is_class(node: Node | None) -> bool:
    return node is not None and node.type == "class"


def assign(reader: Reader, targets: list[Expression], value: Expression, type_of: Expression | None = None) -> None:
    """Add an assignment: a function given to a name is its definition; `a = b = c` has several targets."""
    while isinstance(value, Walrus):
        targets.append(value.target)
        value = value.value
    targets = [each for each in targets if each != value]
    if isinstance(value, Lambda) and isinstance(targets[0], Name):
        reader.out.append(Define(targets[0].name, value.function))
        value = targets.pop(0)
    if targets:
        reader.out.append(Assign(tuple(targets), value, type_of))


def function_declared(reader: Reader, node: Node) -> None:
    """Add a function, or the class that it makes with a prototype."""
    name = node.child_by_field_name("name")
    if name is None:
        return
    text = reader.source.text(name)
    if node.type == "function_signature" and _is_overload(reader, node, text):
        return
    inside = reader.declare(text)
    naming = Naming(reader.scope, text, "function", whole_of(node), inside)
    if isinstance(inside, Name):
        reader.objects.add(inside.name)
        if not class_of_function(reader, node, naming):
            reader.out.append(Define(inside.name, named_function(reader, node, naming)))


def _is_overload(reader: Reader, node: Node, name: str) -> bool:
    """Whether another signature or the implementation of a function follows."""
    following = whole_of(node).next_named_sibling
    while following is not None and following.type == "comment":
        following = following.next_named_sibling
    declared = None if following is None else declaration_of(following)
    other = None if declared is None or declared.type not in FUNCTIONS else declared.child_by_field_name("name")
    return other is not None and reader.source.text(other) == name


def class_declared(reader: Reader, node: Node) -> None:
    """Add a class."""
    name = node.child_by_field_name("name")
    if name is None:
        return
    text, whole = reader.source.text(name), whole_of(node)
    inside = reader.declare(text)
    around = [] if whole is node else whole.children
    form = class_form(reader, node, Naming(reader.scope, text, "class", whole, inside), around)
    if isinstance(form, Name):
        reader.objects.add(form.name)


def interface_declared(reader: Reader, node: Node) -> None:
    """Add an interface."""
    name = node.child_by_field_name("name")
    if name is not None:
        text = reader.source.text(name)
        naming = Naming(reader.scope, text, "interface", whole_of(node), reader.declared_type(node, text))
        interface_form(reader, node, naming, node.child_by_field_name("body"))


def alias_declared(reader: Reader, node: Node) -> None:
    """A type written like an interface is one; another is a name for what it says, where that is plain."""
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None or value is None:
        return
    text = reader.source.text(name)
    inside = reader.declared_type(node, text)
    if value.type == "object_type":
        interface_form(reader, node, Naming(reader.scope, text, "interface", whole_of(node), inside), value)
        return
    form = type_form(reader, value)
    reader.out.append(Assign((inside,), UNKNOWN if form is None else form))


def enum_declared(reader: Reader, node: Node) -> None:
    """Add an enum."""
    name = node.child_by_field_name("name")
    if name is not None:
        text = reader.source.text(name)
        enum_form(reader, node, Naming(reader.scope, text, "enum", whole_of(node), reader.declare(text)))


def namespace_declared(reader: Reader, node: Node) -> None:
    """Add a namespace; an ambient module is one without a name."""
    name = node.child_by_field_name("name")
    if name is None:  # `declare global`
        return
    text = reader.source.text(name)
    if name.type == "string":
        namespace_form(reader, node, reader.hidden("module").name, reader.hidden("module"))
    else:
        namespace_form(reader, node, text, reader.declare(text.split(".")[0]))


def import_alias(reader: Reader, node: Node) -> None:
    """Add `import a = b.c`."""
    parts = node.named_children
    if len(parts) == 2:
        inside = reader.declare(reader.source.text(parts[0]))
        form = reader.expression(parts[1]) if parts[1].type == "identifier" else qualified(reader, parts[1])
        reader.out.append(Assign((inside,), UNKNOWN if form is None else form))
