"""Knowledge declared in code: sources on a role or an agent, named by the actions they ground."""

from pipeline.declare.entries import Knowledge, KnowledgeType, Search, Use

__all__ = ["Knowledge", "KnowledgeType", "Search", "Use"]
