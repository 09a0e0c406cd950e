"""Tasks and templates made from what people have: a .cu file, another tool's file, or nothing yet."""

from evo.importers.files import import_file
from evo.importers.made import Made
from evo.importers.scaffold import make_task

__all__ = ["Made", "import_file", "make_task"]
