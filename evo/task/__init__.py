"""What is to be computed: tasks, the tensors that they declare, and the files that define them."""

from evo.task.baselines import Baseline, Fallback, Tunable
from evo.task.families import Families
from evo.task.flags import Flag
from evo.task.loading import find_file, folders_of, list_tasks, load_task, template_folders
from evo.task.modules import blame, load_module
from evo.task.packing import Packing
from evo.task.pieces import Pieces
from evo.task.problems import DEFAULT_TILE, LARGEST_TILE
from evo.task.relations import Relation
from evo.task.task import Task, Tolerance
from evo.task.tensors import DRAWN_AT_ONCE, BufferSpec, DeclaredTensor, In, InOut, Out, Tensors

__all__ = [
    "DEFAULT_TILE",
    "DRAWN_AT_ONCE",
    "LARGEST_TILE",
    "Baseline",
    "BufferSpec",
    "DeclaredTensor",
    "Fallback",
    "Families",
    "Flag",
    "In",
    "InOut",
    "Out",
    "Packing",
    "Pieces",
    "Relation",
    "Task",
    "Tensors",
    "Tolerance",
    "Tunable",
    "blame",
    "find_file",
    "folders_of",
    "list_tasks",
    "load_module",
    "load_task",
    "template_folders",
]
