"""Knowledge declared in code: sources on a role or an agent, named by the actions they ground."""

from pipeline.declare.actions import Action, ActionType, action
from pipeline.declare.classes import Declaration, agent, declaration_of, role
from pipeline.declare.entries import Knowledge, KnowledgeType, Unit, Use
from pipeline.declare.grounding import Grounding
from pipeline.declare.scope import Cancellation, RetrievalContext
from pipeline.declare.search import NO_EXPANSION, OnFailure, Search, SearchSettings, settled
from schemas.query import Strategy

__all__ = [
    "NO_EXPANSION",
    "Action",
    "ActionType",
    "Cancellation",
    "Declaration",
    "Grounding",
    "Knowledge",
    "KnowledgeType",
    "OnFailure",
    "RetrievalContext",
    "Search",
    "SearchSettings",
    "Strategy",
    "Unit",
    "Use",
    "action",
    "agent",
    "declaration_of",
    "role",
    "settled",
]
