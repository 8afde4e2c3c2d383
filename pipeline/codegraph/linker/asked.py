"""What a link asks of the scopes of other files: each question is a key, and has an answer of its own (see `answers`).

A file is linked again when one of the answers that it got may be another one. A definition's outside (a function's
parameters, a class's bases, their decorators) is part of whatever led to it. A function's body and a class's members are not:
to look into them is a question more.
"""

from __future__ import annotations

from pipeline.codegraph.files import folder_of

Key = tuple[str, ...]
"""A kind of question, and what it asks for."""

NAME = "name"
"""A name of the file, or under which it offers something: whether there is one, and the statements that it depends on."""

STAR = "star"
"""Whether the file itself says which names a star takes; with a name: whether it is one of them."""

MEMBER = "member"
"""A class by its qualified name, and a name: the statements of its body that this depends on, the methods that set it."""

BODY = "body"
"""What the functions of a qualified name do."""

FOUND = "found"
"""The definitions that a qualified name leads to, one in the other."""

ATTACHED = "attached"
"""A class by its qualified name, and a name: a method that stands outside of it."""

SHAPE = "shape"
"""What the file takes from others with a star, and whether it offers nothing but what it exports."""

_PACKAGES = frozenset({"go", "java"})


def place_of(path: str, language: str) -> str:
    """Return whom a question is put to: the file, or all of its folder in languages whose packages are folders, since these
    are asked one after another.
    """
    return f"{folder_of(path)}." if language in _PACKAGES else path
