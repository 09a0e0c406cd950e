"""Record what a GPU answers to every PTX conformance program, as test data for the emulator.

    python benchmarks/record_conformance.py --out recorded.xz      # then: mv recorded.xz tests/ptx/

Needs a Hopper GPU (the programs hold sm_90a instructions) and cuda-bindings; takes seconds. Prints one line a
program: how many slices disagree with their exact expectation, which is a fault of the expectation or of
this GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

import numpy as np
from cuda.bindings import driver as cu
from ptx.catalogue import programs, save
from ptx.programs import Program, disagreements

from evo.trial import BufferArg, TensorMapArg


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call; RuntimeError with the error's name."""
    status, *values = result
    if status != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{status.name}")
    return values[0] if len(values) == 1 else values


def load(ptx: str) -> Any:
    """The entry `k` of a module that the driver compiles."""
    log = bytearray(8192)
    options = [cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    status, module = cu.cuModuleLoadDataEx(ptx.encode() + b"\0", 2, options, [log, len(log)])
    if status != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{status.name}: {log.decode(errors='replace').strip(chr(0))}")
    return module, checked(cu.cuModuleGetFunction(module, b"k"))


def tensor_map(arg: TensorMapArg, address: int) -> Any:
    """A CUtensorMap by the driver."""
    kinds = cu.CUtensorMapDataType
    data_type = {
        "fp16": kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        "bf16": kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        "fp32": kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    }[arg.dtype]
    swizzle = {
        0: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
        32: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
        64: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
        128: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
    }[arg.swizzle]
    rank = len(arg.shape)
    return checked(
        cu.cuTensorMapEncodeTiled(
            data_type,
            rank,
            address,
            [cu.cuuint64_t(n) for n in arg.shape],
            [cu.cuuint64_t(n) for n in arg.strides],
            [cu.cuuint32_t(n) for n in arg.box],
            [cu.cuuint32_t(1)] * rank,
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


def answer(program: Program) -> bytes:
    """Run `program` once; its whole output."""
    module, function = load(program.ptx)
    source = checked(cu.cuMemAlloc(max(256, len(program.input))))
    result = checked(cu.cuMemAlloc(max(256, program.out_nbytes)))
    if program.input:
        checked(cu.cuMemcpyHtoD(source, program.input, len(program.input)))
    checked(cu.cuMemsetD8(result, 0, program.out_nbytes))
    addresses = {"in": int(source), "out": int(result)}
    values: list[Any] = []
    kinds: list[Any] = []
    for arg in program.launch.args:
        if isinstance(arg, BufferArg):
            values.append(addresses[arg.buffer])
            kinds.append(ctypes.c_void_p)
        elif isinstance(arg, TensorMapArg):
            values.append(tensor_map(arg, addresses[arg.buffer]))
            kinds.append(None)
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = program.launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = program.launch.block
    config.sharedMemBytes = program.launch.smem_bytes
    if program.launch.cluster != (1, 1, 1):
        attribute = cu.CUlaunchAttribute()
        attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster = attribute.value.clusterDim
        cluster.x, cluster.y, cluster.z = program.launch.cluster
        config.attrs = [attribute]
        config.numAttrs = 1
    checked(cu.cuLaunchKernelEx(config, function, (tuple(values), tuple(kinds)), 0))
    checked(cu.cuCtxSynchronize())
    raw = bytearray(program.out_nbytes)
    checked(cu.cuMemcpyDtoH(raw, result, len(raw)))
    checked(cu.cuMemFree(source))
    checked(cu.cuMemFree(result))
    checked(cu.cuModuleUnload(module))
    return bytes(raw)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("recorded.xz"), help="file to write")
    parser.add_argument("--only", default="", help="record programs whose name contains this")
    options = parser.parse_args()
    checked(cu.cuInit(0))
    device = checked(cu.cuDeviceGet(0))
    context = checked(cu.cuDevicePrimaryCtxRetain(device))
    checked(cu.cuCtxSetCurrent(context))
    name = checked(cu.cuDeviceGetName(128, device)).decode().strip("\0 ")
    begin = time.perf_counter()
    answers: dict[str, bytes] = {}
    failed = 0
    for program in programs():
        if options.only not in program.name:
            continue
        try:
            raw = answer(program)
        except RuntimeError as error:
            failed += 1
            print(f"{program.name}: {error}", flush=True)
            if "LAUNCH" in str(error) or "ILLEGAL" in str(error) or "MISALIGNED" in str(error):
                print("the context is lost; the programs after this one are not recorded")
                break
            continue
        answers[program.name] = raw
        wrong = []
        for part in program.slices:
            if part.expected is not None:
                lanes = disagreements(part, raw, np.asarray(part.expected))
                wrong += [f"{part.label} ({len(lanes)} lanes, first {lanes[0]})"] if lanes else []
        print(
            f"{program.name}: {len(program.slices)} slices" + "".join(f"\n  unexpected: {w}" for w in wrong),
            flush=True,
        )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    save(options.out, name, answers)
    seconds = time.perf_counter() - begin
    print(
        f"{len(answers)} programs on {name} in {seconds:.1f} s, {failed} failed; {options.out.stat().st_size}
        bytes"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
