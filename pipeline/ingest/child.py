"""The child process that prepares documents: hostile input is met here, where it can hurt nobody else.

Started as `python -m pipeline.ingest.child MODULE:FUNCTION MEMORY SECONDS` with frames on stdin and stdout: 8 bytes of
length, big-endian, then a pickle. An empty frame is answered by an empty one, when all is loaded. It ends with its
stdin.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO

HEADER = 8

YOUNG = (100_000, 10, 10)
"""When the garbage collector looks for cycles: an answer is thousands of objects that live until it is sent, and looking
through them again and again takes a fifth of the time.
"""


def main(task: str, memory: int, seconds: int) -> None:
    """Serve until stdin ends. `memory` is in bytes, `seconds` of processor time are for one frame."""
    _settle(memory)
    frames_in, frames_out = _own_pipes()
    module, _, name = task.partition(":")
    function: Callable[[Any], Any] = getattr(import_module(module), name)
    gc.freeze()
    gc.set_threshold(*YOUNG)
    while len(header := frames_in.read(HEADER)) == HEADER:
        size = int.from_bytes(header, "big")
        answer = b""
        if size:
            _allow(seconds)
            answer = pickle.dumps(function(pickle.loads(frames_in.read(size))), pickle.HIGHEST_PROTOCOL)
        frames_out.write(len(answer).to_bytes(HEADER, "big"))
        frames_out.write(answer)
        frames_out.flush()


def _settle(memory: int) -> None:
    """Give up what a parser does not need: signals of the terminal, memory without end, files to write, core dumps."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # RLIMIT_DATA counts what is written to, RLIMIT_AS also what threads of native libraries merely reserve.
    _limit(resource.RLIMIT_DATA, memory)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, 256)


def _allow(seconds: int) -> None:
    """Give the next frame its processor time; so an endless loop ends even if nobody is left to end it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + seconds + 1)


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(what, (value, hard))
    except (ValueError, OSError):  # macOS knows some of these limits but takes no value; the parent's clock is left
        return


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return stdin and stdout, and give to anything that prints or asks the null device instead."""
    pipes = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    return pipes


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
