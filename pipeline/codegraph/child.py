"""What a child that links runs, over the rules of all languages; see `pipeline.ingest.child`."""

from __future__ import annotations

from pipeline.codegraph.conversation import Conversation
from pipeline.codegraph.rules import linker

answer = Conversation(linker).answer
