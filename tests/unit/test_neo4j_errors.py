"""Every error that Neo4j's driver exports is one of ours, and says nothing that the server or the driver said."""

from __future__ import annotations

import pytest
from neo4j import exceptions
from neo4j._exceptions import BoltHandshakeError, BoltSecurityError
from neo4j.exceptions import Neo4jError

from pipeline.errors import (
    ConfigurationError,
    Conflict,
    DeadlineExceeded,
    MissingDatabase,
    SapwoodError,
    StoreRefused,
    StoreUnavailable,
)
from pipeline.graphs.neo4j_errors import ours

CANARY = "bolt://neo4j:hunter2@10.1.2.3:7687 MATCH (n:Secret {name: 'x'})"
EXPORTED = {
    name: found
    for name in exceptions.__all__
    if isinstance(found := getattr(exceptions, name), type) and issubclass(found, Exception)
}
CLASSES: dict[str, type[SapwoodError]] = {
    "AuthConfigurationError": ConfigurationError,
    "AuthError": ConfigurationError,
    "BrokenRecordError": StoreRefused,
    "CertificateConfigurationError": ConfigurationError,
    "ClientError": StoreRefused,
    "ConfigurationError": ConfigurationError,
    "ConnectionAcquisitionTimeoutError": StoreUnavailable,
    "ConnectionPoolError": StoreUnavailable,
    "ConstraintError": Conflict,
    "CypherSyntaxError": StoreRefused,
    "CypherTypeError": StoreRefused,
    "DatabaseError": StoreUnavailable,
    "DatabaseUnavailable": StoreUnavailable,
    "DriverError": StoreRefused,
    "Forbidden": ConfigurationError,
    "ForbiddenOnReadOnlyDatabase": StoreUnavailable,
    "GqlError": StoreRefused,
    "IncompleteCommit": StoreUnavailable,
    "Neo4jError": StoreRefused,
    "NotALeader": StoreUnavailable,
    "ReadServiceUnavailable": StoreUnavailable,
    "ResultConsumedError": StoreRefused,
    "ResultError": StoreRefused,
    "ResultFailedError": StoreRefused,
    "ResultNotSingleError": StoreRefused,
    "RoutingServiceUnavailable": StoreUnavailable,
    "ServiceUnavailable": StoreUnavailable,
    "SessionError": StoreRefused,
    "SessionExpired": StoreUnavailable,
    "TokenExpired": ConfigurationError,
    "TransactionError": StoreRefused,
    "TransactionNestingError": StoreRefused,
    "TransientError": StoreUnavailable,
    "UnsupportedServerProduct": ConfigurationError,
    "WriteServiceUnavailable": StoreUnavailable,
}
CODES: dict[str, type[SapwoodError]] = {
    "Neo.ClientError.Cluster.NotALeader": StoreUnavailable,
    "Neo.ClientError.Database.DatabaseNotFound": MissingDatabase,
    "Neo.ClientError.Procedure.ProcedureNotFound": ConfigurationError,
    "Neo.ClientError.Schema.ConstraintValidationFailed": Conflict,
    "Neo.ClientError.Security.AuthenticationRateLimit": ConfigurationError,
    "Neo.ClientError.Security.Forbidden": ConfigurationError,
    "Neo.ClientError.Security.Unauthorized": ConfigurationError,
    "Neo.ClientError.Statement.AccessMode": StoreRefused,
    "Neo.ClientError.Statement.SyntaxError": StoreRefused,
    "Neo.ClientError.Statement.UnsupportedAdministrationCommand": ConfigurationError,
    "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration": StoreUnavailable,
    "Neo.DatabaseError.General.UnknownError": StoreUnavailable,
    "Neo.DatabaseError.Transaction.TransactionCommitFailed": StoreUnavailable,
    "Neo.TransientError.General.DatabaseUnavailable": StoreUnavailable,
    "Neo.TransientError.General.MemoryPoolOutOfMemoryError": StoreUnavailable,
    "Neo.TransientError.Transaction.DeadlockDetected": StoreUnavailable,
    "Neo.Something.New.Entirely": StoreRefused,
    "": StoreUnavailable,  # the driver says `Neo.DatabaseError.General.UnknownError` then
    CANARY: StoreRefused,
}


def made(kind: type[Exception]) -> Exception:
    try:
        return kind(CANARY)
    except TypeError:
        return kind(object(), CANARY)  # those that carry a session, a transaction or a result


def mapped(error: Exception, *, passed: bool = False) -> SapwoodError:
    found = ours(error, passed=passed)
    assert found is not None
    assert not any(part in str(found) for part in ("hunter2", "10.1.2.3", "Secret", "bolt://", "MATCH"))
    return found


def test_every_exported_error_is_expected_here() -> None:
    assert set(CLASSES) == set(EXPORTED)


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_error_is_ours(name: str) -> None:
    assert type(mapped(made(EXPORTED[name]))) is CLASSES[name]


@pytest.mark.parametrize("code", CODES)
def test_what_the_server_says_is_ours_by_its_code(code: str) -> None:
    found = mapped(Neo4jError._hydrate_neo4j(code=code, message=CANARY))
    assert type(found) is CODES[code]
    assert code == CANARY or code in str(found)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("Neo.ClientError.Security.Unauthorized", "SAPWOOD_GRAPH_NEO4J_PASSWORD"),
        ("Neo.ClientError.Database.DatabaseNotFound", "SAPWOOD_GRAPH_NEO4J_DATABASE"),
        ("Neo.ClientError.Statement.UnsupportedAdministrationCommand", "Enterprise"),
        ("Neo.DatabaseError.Transaction.TransactionCommitFailed", "disk"),
        ("Neo.TransientError.General.DatabaseUnavailable", "disk"),
        ("Neo.TransientError.General.MemoryPoolOutOfMemoryError", "memory"),
    ],
)
def test_a_message_names_the_cure(code: str, hint: str) -> None:
    assert hint in str(mapped(Neo4jError._hydrate_neo4j(code=code, message=CANARY)))


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(CANARY),
        exceptions.ServiceUnavailable(CANARY),
        exceptions.ConnectionAcquisitionTimeoutError(CANARY),
        Neo4jError._hydrate_neo4j(code="Neo.ClientError.Transaction.TransactionTimedOut", message=CANARY),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_took_too_long_is_the_deadlines_once_that_has_passed(error: Exception) -> None:
    assert isinstance(mapped(error), StoreUnavailable)
    assert isinstance(mapped(error, passed=True), DeadlineExceeded)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError(CANARY), StoreUnavailable),
        (BoltHandshakeError(CANARY, None, b"", b""), ConfigurationError),
        (BoltSecurityError(CANARY, None), ConfigurationError),
        (OverflowError(CANARY), StoreRefused),
        (ValueError(CANARY), StoreRefused),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_the_driver_lets_through_is_ours_too(error: Exception, expected: type[SapwoodError]) -> None:
    assert type(mapped(error)) is expected


@pytest.mark.parametrize("error", [DeadlineExceeded(), KeyError("x"), AssertionError(), EOFError()], ids=repr)
def test_other_errors_are_left_alone(error: Exception) -> None:
    assert ours(error, passed=True) is None
