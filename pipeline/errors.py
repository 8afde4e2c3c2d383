"""Everything that can go wrong, as one tree.

SapwoodError
├── ConfigurationError          yours to mend before anything runs; never softened by a failure policy
│   ├── MissingExtra
│   ├── MissingDatabase
│   ├── GraphCapabilityError
│   └── ProviderUnavailable     nobody serves the model that a request names
├── InvalidRequest              this request cannot be served as it is
│   ├── NotFound
│   ├── Refused                 a rule forbids it (path, address, size, archive)
│   ├── Unauthorized            nobody knows who asks
│   ├── Forbidden               the key lacks the scope
│   ├── Refusal                 an agent's question to a graph, with a code
│   └── TooMany                 over a limit of rate, concurrency or queue share
├── Conflict                    somebody else was first
│   ├── Duplicate
│   ├── FencedOut
│   ├── PromotionConflict
│   └── GenerationChanged
├── InconsistentGeneration      the rows of a generation contradict each other: a defect, never served
├── PromotionRefused            the gate found something wrong with the built generation
├── DocumentError               one document cannot be read; the others go on
│   ├── ParserKilled
│   └── LeftOut                 a rule leaves it out
├── DependencyError             a server or model did not do its part
│   ├── StoreUnavailable
│   ├── Unreachable             a server on the web
│   ├── EmbeddedServerError
│   ├── ModelError
│   │   └── ModelRefused
│   └── EmbeddingError
├── RetrievalError              the knowledge of an action could not be had; its failure policy says what follows
├── GitFailed                   git refuses a command; whoever gave it says what that means
├── Wanted                      a file's summary is needed before its reader can be linked
├── StoreRefused                a store will not take a statement: a fault of ours
├── DeadlineExceeded            our own deadline; never the caller's cancellation
├── RunCancelled                somebody asked for the run to stop
├── RunFailed                   the run ended in failure and is not tried again
└── EventsExpired               the events asked for are beyond retention

A message names the thing and its cure; it never holds an address, a statement or a secret.
"""

from __future__ import annotations

from typing import ClassVar


class SapwoodError(Exception):
    """Sapwood could not do what was asked."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])


class ConfigurationError(SapwoodError):
    """The configuration is not valid; the message names the field."""


class MissingExtra(ConfigurationError):
    """A part needs a package that is not installed; the message names the extra that brings it."""


class MissingDatabase(ConfigurationError):
    """A store lacks the database that a corpus needs; the message names the setting."""


class GraphCapabilityError(ConfigurationError):
    """No graph provider, or more than one, can serve this request."""


class ProviderUnavailable(ConfigurationError):
    """No provider serves the model that this request needs; the message names the model."""


class InvalidRequest(SapwoodError):
    """The request is not valid; the message names the argument."""


class NotFound(InvalidRequest):
    """There is nothing of that name in this corpus."""


class Refused(InvalidRequest):
    """A safety rule forbids this; the message names the rule."""


class Unauthorized(InvalidRequest):
    """No valid key was given."""


class Forbidden(InvalidRequest):
    """The key does not allow this."""


class Refusal(InvalidRequest):
    """A question to a graph is refused; the message is meant for the agent that asked.

    Attributes:
        code: what is wrong, in capitals (`graphtools.refusal.Code`).
        kind: of a query that cannot be read, what is wrong with its text (`graphtools.refusal.Kind`); else empty.
        line, column: where in the text, from 1; 0 where it is about no place.
    """

    def __init__(self, code: str, message: str, kind: str = "", line: int = 0, column: int = 0) -> None:
        self.code, self.kind, self.line, self.column = code, kind, line, column
        super().__init__(message)


class TooMany(InvalidRequest):
    """A limit of this tenant is reached.

    Attributes:
        retry_after: seconds after which another try may succeed.
    """

    def __init__(self, message: str | None = None, retry_after: float = 1.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class Conflict(SapwoodError):
    """Somebody else changed it first."""


class Duplicate(Conflict):
    """A row with this key is already there.

    Attributes:
        constraint: the name of the unique constraint.
    """

    def __init__(self, constraint: str = "") -> None:
        self.constraint = constraint
        super().__init__(f"There is already a row with this key ({constraint}).")


class FencedOut(Conflict):
    """This worker no longer owns the run; its work is discarded."""


class PromotionConflict(Conflict):
    """The corpus moved to another generation while this one was built."""


class GenerationChanged(Conflict):
    """The generation changed while pages of the old one were read."""


class InconsistentGeneration(SapwoodError):
    """The rows of a generation contradict each other; the message names the first that does."""


class PromotionRefused(SapwoodError):
    """The promotion gate refused the generation; the previous one stays current.

    Attributes:
        codes: the gate's codes, in order of discovery.
    """

    def __init__(self, codes: tuple[str, ...], detail: str = "") -> None:
        self.codes = codes
        super().__init__(f"Graph promotion refused ({', '.join(codes)}). {detail}".strip())


class DocumentError(SapwoodError):
    """This document cannot be read."""


class ParserKilled(DocumentError):
    """The parser went over its limit of memory or time, or crashed, and was ended."""


class LeftOut(DocumentError):
    """A rule leaves this document out; the message names the rule."""


class DependencyError(SapwoodError):
    """A server or model did not do its part."""

    retryable = True


class StoreUnavailable(DependencyError):
    """A store cannot be reached or did not answer; the message names its role, never its address."""


class Unreachable(DependencyError):
    """A server on the web cannot be reached, or broke off."""


class EmbeddedServerError(DependencyError):
    """An embedded server could not be started or stopped; the message names the cure."""

    retryable = False


class ModelError(DependencyError):
    """A model's answer could not be had or used.

    Attributes:
        retry_after: seconds the server asked to wait before the next try; 0 if it did not say.
    """

    def __init__(self, message: str | None = None, retry_after: float = 0.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ModelRefused(ModelError):
    """A model endpoint will not serve this request, however often it is asked."""

    retryable = False


class EmbeddingError(DependencyError):
    """An embedding provider broke its contract; asking again would not mend it."""

    retryable = False


class RetrievalError(SapwoodError):
    """The knowledge of an action could not be had.

    Attributes:
        reason: why, in capitals (`declare.failures`).
    """

    def __init__(self, message: str | None = None, reason: str = "") -> None:
        self.reason = reason
        super().__init__(message)


class GitFailed(SapwoodError):
    """git refuses a command.

    Attributes:
        said: the last of its words on standard error, which may name an address and is never shown.
    """

    def __init__(self, command: str = "", said: str = "") -> None:
        self.said = said
        super().__init__(f"`git {command}` failed")


class Wanted(SapwoodError):
    """A file's summary is needed before its reader can be linked; `path` names it."""

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self.path = path


class StoreRefused(SapwoodError):
    """A store will not take a statement or a value; the message holds its error code, never the statement."""


class DeadlineExceeded(SapwoodError):
    """The deadline passed before there was an answer."""


class RunCancelled(SapwoodError):
    """The run was cancelled."""


class RunFailed(SapwoodError):
    """The run failed and is not tried again."""


class EventsExpired(SapwoodError):
    """The events asked for are beyond retention; start again from the newest."""
