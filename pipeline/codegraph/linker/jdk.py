"""What Java's own classes have, as far as it decides which method of the corpus a call means."""

from __future__ import annotations

BOXES = {
    "boolean": "Boolean", "byte": "Byte", "char": "Character", "double": "Double", "float": "Float", "int": "Integer",
    "long": "Long", "short": "Short",
}  # fmt: skip
WIDER = {
    "byte": frozenset({"short", "int", "long", "float", "double"}),
    "short": frozenset({"int", "long", "float", "double"}),
    "char": frozenset({"int", "long", "float", "double"}),
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
}
"""The primitive types that take a value of another one."""

FINAL = frozenset({"String", "StringBuilder", "StringBuffer", "Class", "Void", "Math", "System", *BOXES.values()})
"""Classes of `java.lang` that no class extends and whose bases are all known."""

_NUMBER = frozenset({"Number", "Comparable", "Serializable", "Constable", "ConstantDesc"})
_TEXT = frozenset({"CharSequence", "Comparable", "Serializable"})
_BASES: dict[str, frozenset[str]] = {
    "String": _TEXT | {"Constable", "ConstantDesc"},
    "StringBuilder": _TEXT | {"Appendable", "AbstractStringBuilder"},
    "StringBuffer": _TEXT | {"Appendable", "AbstractStringBuilder"},
    "Class": frozenset(
        {"Serializable", "GenericDeclaration", "AnnotatedElement", "Type", "TypeDescriptor", "OfField", "Constable"}
    ),
    "Boolean": frozenset({"Comparable", "Serializable", "Constable"}),
    "Character": frozenset({"Comparable", "Serializable", "Constable"}),
    **dict.fromkeys(("Byte", "Short", "Integer", "Long", "Float", "Double"), _NUMBER),
    "RuntimeException": frozenset({"Exception", "Throwable", "Serializable"}),
    "Exception": frozenset({"Throwable", "Serializable"}),
    "Error": frozenset({"Throwable", "Serializable"}),
    "IllegalArgumentException": frozenset({"RuntimeException", "Exception", "Throwable", "Serializable"}),
    "IllegalStateException": frozenset({"RuntimeException", "Exception", "Throwable", "Serializable"}),
    "NullPointerException": frozenset({"RuntimeException", "Exception", "Throwable", "Serializable"}),
    "UnsupportedOperationException": frozenset({"RuntimeException", "Exception", "Throwable", "Serializable"}),
}


def bases_of_builtin(name: str) -> frozenset[str]:
    """Return the bases of a class of `java.lang`, without packages; of most it is not known."""
    return _BASES.get(name, frozenset())


_THROWN = """
    addSuppressed fillInStackTrace getCause getLocalizedMessage getMessage getStackTrace getSuppressed initCause printStackTrace
    setStackTrace
"""
_COMPARING = """
    compare comparing comparingDouble comparingInt comparingLong naturalOrder nullsFirst nullsLast reverseOrder reversed
    thenComparing thenComparingDouble thenComparingInt thenComparingLong
"""
_SPLITTING = """
    characteristics estimateSize forEachRemaining getComparator getExactSizeIfKnown hasCharacteristics tryAdvance trySplit
"""
_FUNCTIONS = frozenset({"andThen", "compose", "identity", "negate", "and", "or", "not", "isEqual", "minBy", "maxBy"})
_CALLED = {
    "apply": "Function BiFunction UnaryOperator BinaryOperator IntFunction LongFunction DoubleFunction",
    "accept": "Consumer BiConsumer IntConsumer LongConsumer DoubleConsumer ObjIntConsumer FileFilter FilenameFilter",
    "test": "Predicate BiPredicate IntPredicate LongPredicate DoublePredicate",
    "get": "Supplier",
}
MEMBERS: dict[str, frozenset[str]] = {
    **{kind: _FUNCTIONS | {name} for name, kinds in _CALLED.items() for kind in kinds.split()},
    **dict.fromkeys(
        ("Throwable", "Exception", "RuntimeException", "Error", "IllegalArgumentException", "IllegalStateException",
         "NullPointerException", "UnsupportedOperationException"),
        frozenset(_THROWN.split()),
    ),
    "Object": frozenset(),
    "Serializable": frozenset(),
    "Cloneable": frozenset(),
    "EventListener": frozenset(),
    "RandomAccess": frozenset(),
    "Record": frozenset(),
    "Runnable": frozenset({"run"}),
    "Callable": frozenset({"call"}),
    "Comparable": frozenset({"compareTo"}),
    "AutoCloseable": frozenset({"close"}),
    "Closeable": frozenset({"close"}),
    "Flushable": frozenset({"flush"}),
    "InvocationHandler": frozenset({"invoke", "invokeDefault"}),
    "PrivilegedAction": frozenset({"run"}),
    "PrivilegedExceptionAction": frozenset({"run"}),
    "Iterable": frozenset({"iterator", "forEach", "spliterator"}),
    "Iterator": frozenset({"hasNext", "next", "remove", "forEachRemaining"}),
    "Enumeration": frozenset({"hasMoreElements", "nextElement", "asIterator"}),
    "CharSequence": frozenset({"length", "charAt", "isEmpty", "subSequence", "chars", "codePoints", "compare"}),
    "Comparator": frozenset(_COMPARING.split()),
    "CompletionHandler": frozenset({"completed", "failed"}),
    "Spliterator": frozenset(_SPLITTING.split()),
    "Entry": frozenset({"getKey", "getValue", "setValue", "comparingByKey", "comparingByValue", "copyOf"}),
}  # fmt: skip
"""The methods, besides those of every object, of classes and interfaces that have few; by names without packages."""
