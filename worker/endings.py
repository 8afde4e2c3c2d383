"""How commands end: an error of ours is one line on standard error, and each kind of end has its exit code."""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import IntEnum

from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    InvalidRequest,
    RunCancelled,
    SapwoodError,
    StoreUnavailable,
)
from worker import show

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Exit(IntEnum):
    """What the exit status of a command means."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    PARTIAL = 3
    STOPPED = 4


def guarded(action: Callable[[], int]) -> int:
    """Run an action; an error of ours becomes one line on stderr and its exit code."""
    try:
        return action()
    except KeyboardInterrupt:
        show.problem("interrupted")
        return Exit.STOPPED
    except SapwoodError as error:
        return _told(error)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        show.problem(f"{error.strerror}; what was written is not whole")
        return Exit.FAILED
    except BaseExceptionGroup as group:
        found = first_of_ours(group)
        if found is None:
            raise
        return _told(found)


def exit_code(error: SapwoodError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, ConfigurationError | InvalidRequest):
        return Exit.USAGE
    return Exit.STOPPED if isinstance(error, RunCancelled | DeadlineExceeded) else Exit.FAILED


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> SapwoodError | None:
    """Return the first error of ours in a group, or None."""
    ours = group.subgroup(SapwoodError)
    while isinstance(ours, BaseExceptionGroup):
        inner = ours.exceptions[0]
        if isinstance(inner, SapwoodError):
            return inner
        ours = inner
    return None


def _told(error: SapwoodError) -> int:
    cure = " `sapwood doctor` says what is wrong with it." if isinstance(error, StoreUnavailable) else ""
    show.problem(f"{error}{cure}")
    return exit_code(error)
