"""What Neo4j and its driver report, as our errors. Nothing of what they say goes into a message but the error's code.

The driver's classes are known by their names, so that this needs no driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.errors import (
    ConfigurationError,
    Conflict,
    DeadlineExceeded,
    InvalidRequest,
    MissingDatabase,
    SapwoodError,
    StoreRefused,
    StoreUnavailable,
)

_CODE = re.compile(r"Neo\.[A-Za-z]+\.[A-Za-z]+\.[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class _Fault:
    """One of our errors; `slow` ones are the deadline's once that has passed."""

    error: type[SapwoodError]
    message: str
    slow: bool = False


_GONE = _Fault(
    StoreUnavailable, "The graph store cannot be reached or did not answer; see SAPWOOD_GRAPH_NEO4J_URI.", slow=True
)
_SLOW = _Fault(StoreUnavailable, "The graph store gave up a transaction that took too long.", slow=True)
_RETRY = _Fault(StoreUnavailable, "The graph store gave up a transaction; it may be tried again.")
_FAILED = _Fault(
    StoreUnavailable,
    "The graph store failed inside; its log says why. The disk that holds its data may be full: it needs a restart then.",
)
_CLOSED = _Fault(
    StoreUnavailable,
    "The graph store's database is not available: it starts or was stopped, or the disk that holds its data is full.",
)
_MEMORY = _Fault(
    StoreUnavailable,
    "The graph store has no memory left for this transaction; give the server more heap or transaction memory.",
)
_LOGIN = _Fault(
    ConfigurationError,
    "The graph store does not accept the login; see SAPWOOD_GRAPH_NEO4J_USER and SAPWOOD_GRAPH_NEO4J_PASSWORD.",
)
_RIGHTS = _Fault(
    ConfigurationError, "The graph store's user lacks a right that is needed; see SAPWOOD_GRAPH_NEO4J_USER."
)
_SETTINGS = _Fault(
    ConfigurationError, "The graph store's address or encryption is not valid; see SAPWOOD_GRAPH_NEO4J_URI."
)
_NO_NEO4J = _Fault(ConfigurationError, "The graph store is no Neo4j 5 or speaks no Bolt; see SAPWOOD_GRAPH_NEO4J_URI.")
_NO_DATABASE = _Fault(
    MissingDatabase,
    "The graph store has no such database; see SAPWOOD_GRAPH_NEO4J_DATABASE, or create the database of the corpus.",
)
_NO_PROCEDURE = _Fault(
    ConfigurationError, "The graph store lacks a procedure; install Graph Data Science 2.13 in the server."
)
_EDITION = _Fault(
    ConfigurationError,
    "The graph store's edition cannot create databases: use Neo4j Enterprise, a server whose default database has the "
    "name that the corpus needs, or the database mode `shared`.",
)
_BUSY = _Fault(
    StoreUnavailable,
    "All connections to the graph store are busy; give it a larger pool, or ask less at once.",
    slow=True,
)
_TAKEN = _Fault(
    Conflict, "The graph store has a key already that was written again, or a constraint forbids the write."
)
_UNSURE = _Fault(StoreUnavailable, "The graph store was lost during a commit, which may or may not have happened.")
_MISUSED = _Fault(StoreRefused, "The graph store's driver was used in a way that it refuses.")
_REFUSED = _Fault(StoreRefused, "The graph store refused a statement.")
_VALUE = _Fault(StoreRefused, "A value does not fit a parameter of the graph store.")

_RANGE = _Fault(InvalidRequest, "A sum is beyond the range of its type.")

_BY_CODE: Mapping[str, _Fault] = {
    "Neo.ClientError.Database.DatabaseNotFound": _NO_DATABASE,
    "Neo.ClientError.Procedure.ProcedureNotFound": _NO_PROCEDURE,
    "Neo.ClientError.Security.Forbidden": _RIGHTS,
    "Neo.ClientError.Statement.ArithmeticError": _RANGE,
    "Neo.ClientError.Statement.UnsupportedAdministrationCommand": _EDITION,
    "Neo.ClientError.Transaction.LockClientStopped": _SLOW,
    "Neo.ClientError.Transaction.TransactionTimedOut": _SLOW,
    "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration": _SLOW,
    "Neo.TransientError.Transaction.LockAcquisitionTimeout": _SLOW,
    "Neo.TransientError.General.DatabaseUnavailable": _CLOSED,
    "Neo.TransientError.General.MemoryPoolOutOfMemoryError": _MEMORY,
    "Neo.TransientError.General.OutOfMemoryError": _MEMORY,
    "Neo.TransientError.General.TransactionMemoryLimit": _MEMORY,
    "Neo.TransientError.General.TransactionOutOfMemoryError": _MEMORY,
}
_BY_CLASS: Mapping[str, _Fault] = {
    "AuthError": _LOGIN,
    "Forbidden": _RIGHTS,
    "ConstraintError": _TAKEN,
    "DatabaseUnavailable": _CLOSED,
    "DatabaseError": _FAILED,
    "TransientError": _RETRY,
    "IncompleteCommit": _UNSURE,
    "ServiceUnavailable": _GONE,
    "SessionExpired": _GONE,
    "ConnectionPoolError": _BUSY,
    "UnsupportedServerProduct": _NO_NEO4J,
    "ConfigurationError": _SETTINGS,
    "DriverError": _MISUSED,
    "BoltHandshakeError": _NO_NEO4J,
    "BoltSecurityError": _SETTINGS,
    "BoltError": _GONE,
    "SocketDeadlineExceededError": _GONE,
    "GqlError": _REFUSED,
    "OSError": _GONE,
    "ValueError": _VALUE,
    "TypeError": _VALUE,
    "OverflowError": _VALUE,
}


def ours(error: Exception, *, passed: bool) -> SapwoodError | None:
    """Return the error of ours that stands for one of the driver's; None for those that are none of its business.

    `passed` says whether the caller's deadline is over: then what merely took too long is that deadline's.
    """
    code = str(getattr(error, "code", ""))
    fault = _found(error, code)
    if fault is None:
        return None
    if fault.slow and passed:
        return DeadlineExceeded()
    return fault.error(f"{fault.message} ({code})" if _CODE.fullmatch(code) else fault.message)


def _found(error: Exception, code: str) -> _Fault | None:
    """Go from the particular to the general: the code, then the class and what it is derived from."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code.startswith("Neo.ClientError.Security."):
        return _LOGIN
    classes = (parent.__name__ for parent in type(error).__mro__)
    return next((_BY_CLASS[name] for name in classes if name in _BY_CLASS), None)
