"""Sources and samples as bytes."""

from __future__ import annotations

import random
import zlib

import pytest
from trials import SOURCE

from evo.store.packing import pack_source, unpack_source


@pytest.mark.parametrize("base", [None, "", SOURCE.format(1), SOURCE[:20000], SOURCE * 3, "x" * 100])
@pytest.mark.parametrize("text", ["", "é", SOURCE.format("two"), SOURCE[3000:], SOURCE * 2])
def test_sources_survive_packing(text: str, base: str | None) -> None:
    assert unpack_source(pack_source(text, base), base) == text


def test_edited_sources_survive_packing() -> None:
    dice = random.Random(3)
    base = SOURCE.format(1).split("\n")
    for _ in range(50):
        lines = list(base)
        for _ in range(dice.randrange(8)):
            at, size = dice.randrange(len(lines)), dice.randrange(5)
            edits = [[], ["}"] * size, [f"new {dice.random()}"], lines[at : at + 40], dice.sample(base, size)]
            lines[at : at + size] = dice.choice(edits)
        text = "\n".join(lines)
        assert unpack_source(pack_source(text, SOURCE.format(1)), SOURCE.format(1)) == text


def test_similar_sources_are_small() -> None:
    base, other = SOURCE.format(1), SOURCE.replace("f300(", "g300(").format(2)
    assert len(base) > 40000
    assert len(pack_source(other, base)) < 120


def test_sources_of_older_databases_are_read() -> None:
    base, text = SOURCE.format(1).encode(), SOURCE.replace("f300(", "g300(").format(2).encode()
    packed = b""
    for start in range(0, len(text), 12288):
        packer = zlib.compressobj(9, zdict=base[max(0, start - 8192) : start + 20480])
        part = packer.compress(text[start : start + 12288]) + packer.flush()
        packed += len(part).to_bytes(2, "little") + part
    assert unpack_source(packed, base.decode()) == text.decode()
