"""CommonJS: modules that a call imports, and names that an assignment exports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline.codegraph.javascript.functions import property_name, string_value
from pipeline.codegraph.javascript.reader import Reader
from pipeline.codegraph.source import first
from pipeline.codegraph.summary import Expression, From

if TYPE_CHECKING:
    from tree_sitter import Node

_INTEROP = frozenset({"__importDefault", "__importStar", "_interopRequireDefault", "_interopRequireWildcard"})
_EXPORTED = re.compile(rb"\bexports\.([\w$]+)\s*=(?!=)")
_LONGEST_MODULE = 1000


def exported_names(data: bytes) -> frozenset[str]:
    """Return the names that the file seems to assign to `exports`: to be known before the first use."""
    return frozenset(name.decode("utf-8", "replace") for name in _EXPORTED.findall(data))


def exported(reader: Reader, node: Node) -> str:
    """Return the name that an expression means in what the file exports, `=` for all of it, empty where it does not."""
    if node.type != "member_expression":
        return ""
    of, name = node.child_by_field_name("object"), node.child_by_field_name("property")
    if of is None or name is None:
        return ""
    text = reader.source.text(name)
    if of.type == "identifier":
        root = reader.source.text(of)
        if root == "module" and text == "exports" and reader.is_free(root):
            return "="
        return text if root == "exports" and reader.is_free(root) else ""
    is_module = of.type == "member_expression" and reader.source.text(of) == "module.exports"
    return text if is_module and reader.is_free("module") else ""


def module_of_call(reader: Reader, node: Node) -> Expression | None:
    """Return the module that `require("x")` or `import("x")` gives, through what compilers wrap around it."""
    callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    argument = None if arguments is None else first(arguments)
    if callee is None or argument is None or callee.type not in ("identifier", "import"):
        return None
    name = reader.source.text(callee)
    if name in _INTEROP and argument.type == "call_expression":
        callee, arguments = argument.child_by_field_name("function"), argument.child_by_field_name("arguments")
        argument = None if arguments is None else first(arguments)
        if callee is None or argument is None:
            return None
        name = reader.source.text(callee)
    if name == "require" and not reader.is_free(name):
        return None
    if name not in ("require", "import") or argument.type not in ("string", "template_string"):
        return None
    module = string_value(reader, argument)
    if not module or len(module) > _LONGEST_MODULE or "${" in module:
        return None
    return reader.imported(module, reader.line(node))


def export_helper(reader: Reader, node: Node) -> bool:
    """Add what calls that TypeScript makes of exports say; False for all other calls.

    `__exportStar(require("./x"), exports)`, and `Object.defineProperty(exports, "a", {get: function () { return x; }})`.
    """
    callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if callee is None or arguments is None:
        return False
    name, given = reader.source.text(callee), arguments.named_children
    if name in ("__exportStar", "tslib_1.__exportStar") and given and given[0].type == "call_expression":
        module = module_of_call(reader, given[0])
        if module is not None:
            made = reader.imports.pop()
            reader.out.append(From(made.module, (("*", "*"),), 0, made.line, exported=True))
            return True
    if name == "Object.defineProperty" and len(given) == 3 and reader.source.text(given[0]) == "exports":
        value = _getter(given[2])
        exported_as = property_name(reader, given[1])
        if value is not None and exported_as:
            reader.offer(exported_as, reader.expression(value))
            return True
    return False


def _getter(node: Node) -> Node | None:
    """Return what the function `get` of a descriptor returns."""
    for pair in node.named_children:
        function = pair.child_by_field_name("value")
        body = None if function is None else function.child_by_field_name("body")
        if body is not None and body.type == "statement_block" and len(body.named_children) == 1:
            statement = body.named_children[0]
            return first(statement) if statement.type == "return_statement" else None
    return None
