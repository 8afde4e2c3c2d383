"""The failure policy: what may be softened by `on_failure`, and what never is."""

from __future__ import annotations

from pipeline.errors import (
    Conflict,
    DependencyError,
    DocumentError,
    InconsistentGeneration,
    RetrievalError,
    SapwoodError,
    StoreRefused,
)

SOURCE_LOADING = "SOURCE_LOADING"
"""The reason of a source that is not there, cannot be read or cannot be indexed."""

PROVIDER = "PROVIDER"
"""The reason of a store or a model that failed while it served a valid configuration."""

_OF_A_PROVIDER = (DependencyError, DocumentError, Conflict, InconsistentGeneration, StoreRefused)


def failure_of(error: SapwoodError) -> RetrievalError | None:
    """Return the failure of the retrieval that this is, or None for what is no failure but must reach the caller as it is.

    That is an error of the configuration (a missing provider and a conflict of claims among them), a request that is not
    valid, a cancellation and our own deadline.
    """
    if isinstance(error, RetrievalError):
        return error
    if isinstance(error, _OF_A_PROVIDER):
        return RetrievalError(str(error), PROVIDER)
    return None
