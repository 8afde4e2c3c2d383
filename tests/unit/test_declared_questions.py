"""Which argument of an action is searched for; numbers in the names are those of the specification's cases."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional, Union

import pytest

from pipeline.declare.question import Question, question_of
from pipeline.errors import ConfigurationError, InvalidRequest

if TYPE_CHECKING:
    from decimal import Decimal

Topic = NewType("Topic", str)
Words = Annotated[str, "in any language"]


def two(a: str, b: str) -> None: ...


def refused(*words: str) -> pytest.RaisesExc[ConfigurationError]:
    return pytest.RaisesExc(ConfigurationError, check=lambda error: all(word in str(error) for word in words))


def test_r1_the_first_text_is_the_question() -> None:
    assert question_of(two) == Question("a")


def test_r2_a_parameter_that_is_named_is_the_question() -> None:
    assert question_of(two, "b") == Question("b")


def test_r3_a_name_that_is_no_parameter_is_refused() -> None:
    with refused("'zzz'", "name one of: a, b"):
        question_of(two, "zzz")


def number_first(n: int, size: float, topic: str) -> None: ...
def keyword_only(n: int, *, topic: str) -> None: ...
def positional_only(topic: str, /, n: int) -> None: ...
def with_default(topic: str = "all") -> None: ...
def optional(topic: Optional[str] = None) -> None: ...  # noqa: UP045
def optional_first(topic: Optional[str], other: str) -> None: ...  # noqa: UP045
def union(topic: str | None) -> None: ...
def old_union(topic: Union[str, None]) -> None: ...  # noqa: UP007
def annotated(topic: Annotated[str, "what to look for"]) -> None: ...
def annotated_optional(topic: Annotated[str | None, "what to look for"] = None) -> None: ...
def alias(topic: Words) -> None: ...
def new_type(topic: Topic) -> None: ...
def quoted(topic: str) -> None: ...
def beside_a_type_for_checkers(price: Decimal, topic: str) -> None: ...
async def later(topic: str) -> None: ...
def after_many(*numbers: int, topic: str) -> None: ...
def before_choice(kind: Literal["a", "b"], topic: str) -> None: ...
def before_bytes(data: bytes, texts: list[str], either: str | int, topic: str) -> None: ...
def untyped_first(thing, topic: str) -> None: ...  # type: ignore[no-untyped-def]


def logged(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def inner(*args: object, **kwargs: object) -> None:
        function(*args, **kwargs)

    return inner


wrapped = logged(number_first)


@pytest.mark.parametrize(
    "function",
    [
        number_first, keyword_only, positional_only, with_default, optional, optional_first, union, old_union, annotated,
        annotated_optional, alias, new_type, quoted, beside_a_type_for_checkers, later, after_many, before_choice,
        before_bytes, untyped_first, pytest.param(wrapped, id="wrapped"),
    ],
)  # fmt: skip
def test_the_first_text_is_found_in_any_signature(function: Callable[..., object]) -> None:
    assert question_of(function).parameter == "topic"
    assert question_of(function, "topic").parameter == "topic"


def test_annotations_that_are_not_postponed_are_read_too() -> None:
    scope: dict[str, Any] = {}
    code = "def eager(n: int, topic: str | None = None): ...\ndef quoted(n: 'int', topic: 'str'): ..."
    exec(compile(code, "eager", "exec", dont_inherit=True), scope)
    assert scope["eager"].__annotations__["n"] is int
    assert [question_of(scope[name]).parameter for name in ("eager", "quoted")] == ["topic", "topic"]


def anything(topic: Any) -> None: ...


class Asker:
    def method(self, topic: str, n: int) -> None: ...
    def untyped(self, topic) -> None: ...  # type: ignore[no-untyped-def]


def test_the_object_of_a_method_is_no_argument() -> None:
    assert question_of(Asker.method, method=True).parameter == "topic"
    with refused("'self'", "name one of: topic, n"):
        question_of(Asker.method, "self", method=True)


def test_a_parameter_that_is_named_may_lack_a_type() -> None:
    assert question_of(Asker.untyped, "topic", method=True).parameter == "topic"
    assert question_of(beside_a_type_for_checkers, "price").parameter == "price"
    assert question_of(anything, "topic").parameter == "topic"
    with refused("no parameter is a text"):
        question_of(Asker.untyped, method=True)


def only_numbers(n: int) -> None: ...
def nothing() -> None: ...
def many(*args: str) -> None: ...
def keywords(**kwargs: str) -> None: ...


@pytest.mark.parametrize("function", [only_numbers, nothing, many, keywords])
def test_an_action_without_a_text_is_refused(function: Callable[..., object]) -> None:
    with refused("no parameter is a text (str)", "search.query_param"):
        question_of(function)


@pytest.mark.parametrize(("function", "name"), [(many, "args"), (many, "arg0"), (keywords, "kwargs"), (nothing, "a")])
def test_r3_arguments_without_names_cannot_be_named(function: Callable[..., object], name: str) -> None:
    with refused(f"'{name}'", "there is none"):
        question_of(function, name)


def test_a_parameter_that_is_named_is_no_number() -> None:
    with refused("'n'", "no text", "name another"):
        question_of(number_first, "n")


def test_what_has_no_signature_is_refused() -> None:
    with refused("cannot be read"):
        question_of(dict)


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (two, {"a": "leave", "b": "pay"}, "leave"),
        (two, {"b": "pay"}, ""),
        (with_default, {}, "all"),
        (with_default, {"topic": "pay"}, "pay"),
        (optional, {}, ""),
        (optional, {"topic": None}, ""),
    ],
)
def test_the_question_is_taken_from_the_arguments(
    function: Callable[..., object], arguments: dict[str, object], text: str
) -> None:
    assert question_of(function).text(arguments) == text


def test_a_question_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a must be a text, not int"):
        question_of(two).text({"a": 5})
