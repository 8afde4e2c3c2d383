"""`python -m worker` is the command `sapwood`."""

from worker.cli import main

main()
