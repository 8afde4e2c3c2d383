"""`sapwood`, which is also `python -m worker`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Load the command and run it. Loading takes a while: who interrupts it is told so, and not where it was."""
    gc.disable()  # what modules make stays: to look through it again and again is a fifth of the loading
    try:
        from worker.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("sapwood: interrupted\n")
        sys.stderr.flush()
        os._exit(4)  # `Exit.STOPPED`, which may not be loaded; CPython can forget that the interrupt was caught
    gc.enable()
    command()


if __name__ == "__main__":
    main()
