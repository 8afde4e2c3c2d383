"""`python -m worker` is the command `sapwood`."""

from __future__ import annotations

from worker.cli import main

main()
