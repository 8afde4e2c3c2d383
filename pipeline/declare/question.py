"""Which argument of an action is the question that is searched for."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, ForwardRef, Union, get_args, get_origin, get_type_hints

from pipeline.errors import ConfigurationError, InvalidRequest

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Question:
    """The parameter that is searched for, and what is where a call leaves it out (None: nothing, or it cannot)."""

    parameter: str
    default: str | None = None

    def text(self, arguments: Mapping[str, object]) -> str:
        """Return the question among a call's arguments, by their names; empty where there is none to be asked.

        Raises:
            InvalidRequest: it is no text.
        """
        value = arguments.get(self.parameter, self.default)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise InvalidRequest(f"{self.parameter} must be a text, not {type(value).__name__}")
        return value


def question_of(function: Callable[..., object], query_param: str = "", *, method: bool = False) -> Question:
    """Return what a function's `query_param` is or, where that is empty, the first of its parameters that is a text.

    A text is a `str`, also where it may be None or is `Annotated`; a parameter that is named may have no type, or one that
    is there for type checkers only. `*args` and `**kwargs` are no parameters, since what comes in with them has no name.
    Of a `method`, the first parameter is left out: that is the object or the class.

    Raises:
        ConfigurationError: there is no such parameter, or it is no text.
    """
    parameters = _parameters(function, method)
    if query_param:
        if query_param not in parameters:
            names = ", ".join(parameters) or "there is none"
            raise ConfigurationError(f"search.query_param {query_param!r} is no parameter; name one of: {names}.")
        chosen = parameters[query_param]
        if not (_is_open(chosen.annotation) or _is_text(chosen.annotation)):
            raise ConfigurationError(
                f"search.query_param {query_param!r} is a parameter, but no text (str); name another."
            )
    else:
        texts = [parameter for parameter in parameters.values() if _is_text(parameter.annotation)]
        if not texts:
            raise ConfigurationError("no parameter is a text (str) to search for; add one, or set search.query_param.")
        chosen = texts[0]
    return Question(chosen.name, chosen.default if isinstance(chosen.default, str) else None)


def _parameters(function: Callable[..., object], method: bool) -> dict[str, inspect.Parameter]:
    """Return the parameters that have a name of their own, in order, with their annotations resolved."""
    scope: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return {
        parameter.name: parameter.replace(annotation=_resolved(parameter.annotation, scope))
        for parameter in signature_of(function, method=method).parameters.values()
        if parameter.kind not in _VARIADIC
    }


def signature_of(function: Callable[..., object], *, method: bool = False) -> inspect.Signature:
    """Return how a function is called; of a `method`, without its first parameter.

    Raises:
        ConfigurationError: that cannot be read.
    """
    try:
        found = _signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError("its parameters cannot be read; declare a function written in Python.") from error
    parameters = list(found.parameters.values())
    return found.replace(parameters=parameters[1 if method else 0 :])


def _signature(function: Callable[..., object]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _resolved(annotation: Any, scope: dict[str, Any]) -> Any:
    """Return an annotation without quotes; one that is not there at run time is a `ForwardRef`.

    Each on its own, so that a type which only type checkers import does no harm to the others.
    """
    try:
        one = SimpleNamespace(__annotations__={"one": annotation})
        return annotation if _is_open(annotation) else get_type_hints(one, scope, include_extras=True)["one"]
    except (NameError, TypeError, SyntaxError, AttributeError):
        return ForwardRef("unknown")


def _is_open(annotation: Any) -> bool:
    """Whether nothing is known of the values."""
    return isinstance(annotation, ForwardRef) or any(
        annotation is one for one in (Any, object, inspect.Parameter.empty)
    )


def _is_text(annotation: Any) -> bool:
    """Whether values are `str`, or `str` and None; an alias (`type Text = str`) and a NewType are what they stand for."""
    if get_origin(annotation) is Annotated:
        return _is_text(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        return bool(members) and all(map(_is_text, members))
    meant = getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None)
    return annotation is str or (meant is not None and _is_text(meant))
