"""total[n] = the sum of the codes of row n: two codes of four bits a byte, packed by columns for kernels."""

from evo.task import In, Out, Packing, Task


def pack(problem, inputs):
    """The bytes of a column one after the other: threads, which have a row each, read neighbours."""
    return inputs["nibble_rows"].T.contiguous()


def unpack(problem, packed):
    return {"nibble_rows": packed.T.contiguous()}


class Nibbles(Task):
    name = "nibbles"
    sizes = {"rows": 100, "columns": 24}
    tensors = {"nibble_rows": In("rows", "columns", dtype="u8"), "total": Out("rows", dtype="i32")}
    packings = {"by_columns": Packing(lambda at: (at["columns"], at["rows"]), "u8", pack, unpack)}
    independent_rows = True

    def compute(self, problem, x):
        return ((x["nibble_rows"] & 15).long() + (x["nibble_rows"] >> 4)).sum(-1)


TASK = Nibbles()
