"""Words that were given up for those of the glossary (CONTRIBUTING.md): they come back nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RETIRED = {
    "arena": "guarded memory",
    "contest": "rounds",
    "errand": "run",
    "heirloom": "warm-start point",
    "hostile": "emulator check",
    "laboratory": "mutation run",
    "leader": "one of the best trials",
    "ledger": "history",
    "lore": "warm start",
    "referee": "confirm worker",
    "revisit": "remeasurement",
    "rig": "study",
    "scene": "graph",
    "visit": "evaluation",
    "wish": "suggestion",
}
"""A word -> what is said instead."""

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("kernels/*.md")])
MODULES = sorted(path for path in ROOT.glob("evo/**/*.py") if path.parent.name != "versions")
"""Migrations know what databases were made of before."""
PAGES = [*DOCUMENTS, *MODULES]

PRONOUNS = re.compile(r"(?:(\w+)\s+)?\b(who|whom|whoever|nobody|somebody)\b", re.IGNORECASE)
PEOPLE = {"people", "person", "those", "someone", "anyone", "everyone", "author", "reader"}
"""Before one of the pronouns: then it is about people."""


def retired(text: str) -> list[str]:
    """The retired words of a text, singular or plural, also within names: `open_arena`, `LoreKeeper`."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text)]
    forms = [(word, word.removesuffix("s"), word.removesuffix("es")) for word in words]
    return [
        f"{form}: say {RETIRED[form]}" for three in forms for form in dict.fromkeys(three) if form in RETIRED
    ]


def test_a_retired_word_is_found_wherever_it_hides() -> None:
    assert retired("the wishes of open_arena, LoreKeeper and SCENES") == [
        "wish: say suggestion",
        "arena: say guarded memory",
        "lore: say warm start",
        "scene: say graph",
    ]
    assert retired("explores a rigid area of scenery") == []


def pronouns(text: str) -> list[str]:
    """The pronouns for people that stand for code."""
    return [f"{before} {word}" for before, word in PRONOUNS.findall(text) if before.lower() not in PEOPLE]


def test_code_is_it() -> None:
    assert pronouns("people who read, and a process of which nobody hears") == ["which nobody"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_no_retired_word_and_calls_code_it(page: Path) -> None:
    """Documents; and modules: their names, all names in them, and their prose."""
    text = f"{page.relative_to(ROOT)} {page.read_text()}"
    assert retired(text) == []
    assert pronouns(text) == []
