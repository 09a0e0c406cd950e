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
    "ledger": "history",
    "lore": "warm start",
    "referee": "confirm worker",
    "rig": "study",
    "scene": "graph",
    "wish": "suggestion",
}
"""A word -> what is said instead."""

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("kernels/*.md")])


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


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_have_no_retired_word(page: Path) -> None:
    assert retired(page.read_text()) == []
