"""Sizes as a person writes them: "1,8,512,64", or some by name, "L=512,D=64"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from evo.errors import UsageError


def sizes_of(shape: str, example: Mapping[str, int], named: Sequence[str]) -> dict[str, int]:
    """The sizes that a shape text says, the others as the `example` has them. UsageError if malformed, with
    what was probably meant; `named`: sets of problems that might have been."""
    hint = f"{','.join(example)} as in {','.join(map(str, example.values()))}, or some by name: "
    hint += f"{next(iter(example))}=…"
    texts = shape.replace(" ", "").split(",")
    if all("=" in text for text in texts):
        said = dict(text.split("=", 1) for text in texts)
        if strange := sorted(set(said) - set(example)):
            raise UsageError(f"unknown size: {strange[0]}", hint)
        texts = [said.get(size, str(number)) for size, number in example.items()]
    if len(texts) != len(example) or not all(re.fullmatch(r"[0-9]{1,9}", text) for text in texts):
        known = f"whole numbers: {hint}" + (f"; or a named one: {', '.join(named)}" if named else "")
        raise UsageError(f"malformed shape: {shape}", _meant(shape, len(example)) + known)
    sizes = dict(zip(example, map(int, texts), strict=True))
    if min(sizes.values()) < 1:
        raise UsageError(f"empty shape: {shape}", f"every size is at least 1: {hint}")
    return sizes


def _meant(shape: str, count: int) -> str:
    """The start of a hint that says how to write `1e6`, `1_000_000`, `2**20`, `4k` or `64x64`."""
    names, texts = [], []
    for part in re.split(r"[,xX]" if count > 1 else ",", shape.replace(" ", "")):
        name, equals, text = part.rpartition("=")
        names.append(name + equals)
        texts.append(text)
    readings = [[_whole_number(text, kilo) for text in texts] for kilo in (1024, 1000)]
    found = [
        ",".join(f"{name}{number}" for name, number in zip(names, numbers, strict=True))
        for numbers in readings
        if all(numbers) and (len(numbers) == count or all(names))
    ]
    return f"write {' or '.join(dict.fromkeys(found))}; " if found else ""


def _whole_number(text: str, kilo: int) -> int | None:
    """The number that a text seems to mean; None where it is none, or far too large."""
    text = re.sub(r"(?<=\d)[_'](?=\d)", "", text)
    power = re.fullmatch(r"(\d{1,4})(\*\*|\^)(\d{1,2})", text)
    unit = re.fullmatch(r"(\d+(?:\.\d+)?)([km])", text, re.IGNORECASE)
    plain = re.fullmatch(r"\d+(?:\.\d*)?(?:[eE]\+?\d{1,2})?", text)
    if power:
        found = float(int(power[1]) ** int(power[3]))
    elif unit:
        found = float(unit[1]) * kilo ** (2 if unit[2] in "mM" else 1)
    else:
        found = float(text) if plain else 0.0
    return int(found) if 1 <= found < 1e9 and found.is_integer() else None
