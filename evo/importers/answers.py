"""What a script says is right (`answer=`), as torch; and what the kernel itself seems to compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evo.importers.cuda_source import CudaSource
from evo.importers.script import Array, Number, unknown_part
from evo.importers.source import KernelArgument, formula_of
from evo.importers.tuned import TunedArgument


@dataclass(frozen=True)
class Answer:
    """`compute`'s text and the sides that it adds up along; or why there is none."""

    compute: str = ""
    sums: tuple[Number, ...] = ()
    why: str = ""


def answer_of(
    answers: Any,
    values: Sequence[Any],
    arguments: Sequence[TunedArgument],
    in_torch: Callable[[str], str],
) -> Answer:
    """The answer of a script, where it is made of the arguments. `in_torch`: an expression over sizes as
    torch has it."""
    if not isinstance(answers, (list, tuple)):
        missing = unknown_part(answers)
        return Answer(why=f"answer= depends on {missing.why}" if missing else "the script has no answer=")
    drawn = {
        value.code.partition("@")[2].partition("@")[0]: argument.name
        for value, argument in zip(values, arguments, strict=True)
        if isinstance(value, Array)
    }
    parts: list[str] = []
    sums: tuple[Number, ...] = ()
    for answer, value, argument in zip(answers, values, arguments, strict=False):
        if answer is None or argument.role in ("", "in"):
            continue
        if not isinstance(answer, Array):
            missing = unknown_part(answer)
            return Answer(why=f"answer= depends on {missing.why}" if missing else "answer= is no array")
        if any(number not in drawn for number in re.findall(r"@(\d+)@", answer.code)):
            return Answer(why="answer= is made of arrays that are no arguments")
        text = re.sub(r"‹([^›]*)›", lambda found: in_torch(found[1]), answer.code)
        text = re.sub(r"@(\d+)@", lambda found: f'x["{drawn[found[1]]}"]', text)
        if argument.role == "inout" and value.zeros:  # zeros in the script, and anything here
            text = f'x["{argument.name}"] + {text}'
        parts.append(f'"{argument.name}": {text}')
        sums += answer.sums
    if len(parts) < sum(argument.role in ("out", "inout") for argument in arguments):
        return Answer(why="answer= does not name every array that the kernel writes")
    return Answer(f"{{{', '.join(parts)}}}", sums)


def formula_text(source: CudaSource, arguments: Sequence[TunedArgument]) -> str:
    """What the kernel computes of each element, as a hint to write down what is right by."""
    sizes = [argument.value.isidentifier() for argument in arguments if not argument.role]
    known = tuple(KernelArgument(a.name, a.dtype, a.role) for a in arguments)
    found = formula_of(source.body, known) if all(sizes) else {}
    named = [f'"{name}": {text}' for name, text in found.items()]
    return f"{{{', '.join(named)}}}" if named else ""
