"""Mutants: an honest kernel's PTX, broken in one place.

A mutant changes one statement. What is changed stands in one file a subject: `order` (barriers, waits,
fences, scopes, phases), `control` (predicates, branches, comparisons, bounds), `numbers` (constants,
factors, roundings), `places` (which lane accesses which byte), `matrices` (fragments, descriptors, copies of
tiles). `mutants` makes every mutant of a kernel, `sample` takes some of every kind.
"""

from evo.selftest.mutation.mutant import Mutant, cuda_lines, mutants, sample

__all__ = ["Mutant", "cuda_lines", "mutants", "sample"]
