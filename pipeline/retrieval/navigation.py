"""REASONING: a model walks down the headings of documents, a level at a time, and so chooses where to search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.deadline import Deadline
from pipeline.errors import ModelRefused
from pipeline.retrieval.assistants import Assigned, Navigator, Option, heard, listed
from pipeline.retrieval.outline import Section, branches
from pipeline.retrieval.rows import Ints

LEVELS = 4
"""Steps of a walk, and so calls of the model, at most: the documents, and three levels of headings."""

OPTIONS = 40
"""What a step offers at most; the rest of a level is left out, and counted."""

CHOICES = 5
"""What is opened in a step at most."""

LABEL = 200
"""Characters of a heading that a model is shown."""


@dataclass(frozen=True, slots=True)
class Journey:
    """Where a walk ended, how many steps it took, and how many options were not offered."""

    sections: tuple[Section, ...]
    steps: int
    left_out: int

    @property
    def chunks(self) -> Ints:
        """The ids of all chunks below, ascending."""
        return np.array(sorted({chunk for section in self.sections for chunk in section.chunks}), dtype=np.int64)


async def navigate(
    navigator: Assigned[Navigator], question: str, roots: Sequence[Section], deadline: Deadline
) -> Journey:
    """Let the navigator choose documents, then headings below those it chose, and so on.

    A section none of whose headings it chooses is taken as a whole. If it chooses no document, the journey is empty.

    Raises:
        ModelError: it did not answer, or not in a form that can be used.
        DeadlineExceeded: it was late.
    """
    ended: list[Section] = []
    level: list[tuple[Section | None, Section]] = [(None, root) for root in roots]
    steps = left_out = 0
    while level and steps < LEVELS:
        left_out += max(0, len(level) - OPTIONS)
        level = level[:OPTIONS]
        picked = [level[number - 1] for number in await _chosen(navigator, question, level, deadline)]
        steps += 1
        opened = [section for _, section in picked]
        ended = [section for section in ended if not any(above is section for above, _ in picked)] + opened
        level = [(section, below) for section in opened for below in branches(section)]
    return Journey(tuple(ended), steps, left_out)


async def _chosen(
    navigator: Assigned[Navigator],
    question: str,
    level: Sequence[tuple[Section | None, Section]],
    deadline: Deadline,
) -> list[int]:
    options = [Option(_label(above, section), len(section.chunks)) for above, section in level]
    answer: object = await heard(
        "navigator",
        lambda: navigator.provider.choose(navigator.model, question, options, CHOICES, deadline),
        deadline,
    )
    return chosen(answer, len(options))


def chosen(answer: object, options: int) -> list[int]:
    """Return the first numbers of a navigator's answer, each once.

    Raises:
        ModelRefused: it is no list of numbers from 1 to `options`.
    """
    numbers = listed(answer)
    valid = [number for number in numbers or () if isinstance(number, int) and number is not True]
    valid = [number for number in valid if 1 <= number <= options]
    if numbers is None or len(valid) < len(numbers):
        raise ModelRefused(f"The navigator's answer is no list of numbers from 1 to {options}.")
    return list(dict.fromkeys(valid))[:CHOICES]


def _label(above: Section | None, section: Section) -> str:
    path = f"{above.label} > {section.label}" if above else section.label
    return " ".join(path.split())[:LABEL]
