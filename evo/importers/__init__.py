"""Tasks and templates made from what people have: a .cu file, or nothing yet."""

from evo.importers.scaffold import Made, make_task

__all__ = ["Made", "make_task"]
