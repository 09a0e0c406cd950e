"""The emulator's race detector: exact to the byte, in global and in shared memory."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.programs import entry
from ptx.running import aligned, binary_of, h200, regions_of

from evo.device.emulator import EmulatorDevice, EmulatorKernel
from evo.errors import Red
from evo.gpu import KNOWN_GPUS
from evo.trial import BufferArg, LaunchConfig

ROWS = """
.reg .b32 %t, %c, %n, %row, %lane, %i, %v; .reg .b64 %out, %a; .reg .pred %p, %q;
.shared .align 16 .b8 block[1024];
ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x;
mad.lo.u32 %t, %c, %n, %t; shr.u32 %row, %t, 5; and.b32 %lane, %t, 31;
"""
"""A warp a row; the rows are warps of one CTA, or CTAs of one warp each."""

BY_WARPS, BY_CTAS = (1, 256), (8, 32)
PLACES = [("global", BY_WARPS), ("global", BY_CTAS), ("shared", BY_WARPS)]
PLACE_NAMES = ["global by warps", "global by CTAs", "shared by warps"]


def verdict(body: str, ctas: int, threads: int, schedule: str = "eager", initialised: bool = False) -> str:
    """ "GREEN", or why the kernel is red. With `initialised` it may read `out` before it writes there."""
    kernel = EmulatorKernel(h200(), binary_of(entry(body)))
    arrays = {"in": aligned(1024), "out": aligned(1024, 0xA5)}
    config = LaunchConfig((ctas, 1, 1), (threads, 1, 1), 0, (BufferArg("in"), BufferArg("out")))
    try:
        kernel.launch(config, regions_of(arrays, initialised=initialised), schedule)
    except Red as red:
        return red.reason
    return "GREEN"


def rows_of(space: str, nbytes: int, columns: int, stride: int, rest: str = "") -> str:
    """Every row writes `columns` values of `nbytes`, from `stride` times its number on; then `rest`, in which
    %a is the address of the thread's own value."""
    base = {"global": "mov.b64 %a, %out;", "shared": "mov.u64 %a, block; cvta.shared.u64 %a, %a;"}[space]
    return (
        f"{ROWS} {base} .reg .b64 %o; mad.lo.u32 %i, %row, {stride}, %lane; "
        f"mul.wide.u32 %o, %i, {nbytes}; add.u64 %a, %a, %o; setp.lt.u32 %p, %lane, {columns}; "
        f"@%p st.u{8 * nbytes} [%a], %t; {rest}"
    )


@pytest.mark.parametrize(("space", "grid"), PLACES, ids=PLACE_NAMES)
@pytest.mark.parametrize("columns", [1, 3, 31])
@pytest.mark.parametrize("nbytes", [1, 2])
@pytest.mark.parametrize("schedule", ["eager", "reversed", "seeded:3"])
def test_rows_that_meet_in_a_word_are_no_race(
    space: str, grid: tuple[int, int], columns: int, nbytes: int, schedule: str
) -> None:
    read_back = f"@%p ld.u{8 * nbytes} %v, [%a]; @%p st.u{8 * nbytes} [%a], %lane;"
    assert verdict(rows_of(space, nbytes, columns, columns, read_back), *grid, schedule) == "GREEN"


@pytest.mark.parametrize(("space", "grid"), PLACES, ids=PLACE_NAMES)
@pytest.mark.parametrize("columns", [2, 3, 31])
@pytest.mark.parametrize("nbytes", [1, 2])
def test_rows_that_share_a_value_are_a_race(
    space: str, grid: tuple[int, int], columns: int, nbytes: int
) -> None:
    assert verdict(rows_of(space, nbytes, columns, columns - 1), *grid) == "race"


@pytest.mark.parametrize(("space", "grid"), PLACES, ids=PLACE_NAMES)
@pytest.mark.parametrize("schedule", ["eager", "reversed"])
@pytest.mark.parametrize("other", range(4))
@pytest.mark.parametrize("how", ["st.u8 [%a], %t;", "ld.u8 %v, [%a];"], ids=["written", "read"])
def test_each_owner_of_a_word_is_remembered(
    space: str, grid: tuple[int, int], schedule: str, other: int, how: str
) -> None:
    """Rows 0 to 3 own a byte of the first word each. Row 4, or the first, goes to one of theirs."""
    body = rows_of(space, 1, 1, 1)
    base = "mov.b64 %a, %out;" if space == "global" else "mov.u64 %a, block; cvta.shared.u64 %a, %a;"
    late = f"setp.eq.u32 %q, %row, 4; and.pred %q, %q, %p; {base} add.u64 %a, %a, {other}; @%q {how}"
    wait = "bar.sync 0;" if grid == BY_WARPS else ""
    assert verdict(body + late, *grid, schedule, initialised=True) == "race"
    if wait:
        assert verdict(body + wait + late, *grid, schedule) == "GREEN"


@pytest.mark.parametrize(("space", "grid"), PLACES, ids=PLACE_NAMES)
@pytest.mark.parametrize("first", range(3))
def test_each_reader_of_a_word_is_remembered(space: str, grid: tuple[int, int], first: int) -> None:
    """Rows 0 to 2 read a word, or a byte of it each; row 3 then writes what row `first` has read."""
    if space == "global":
        start, at = "", "mov.b64 %a, %out;"
    else:
        at = "mov.u64 %a, block; cvta.shared.u64 %a, %a;"
        start = f"{at} setp.eq.u32 %q, %t, 0; @%q st.u32 [%a], 0; bar.sync 0;"
    late = (
        f"{at} .reg .b64 %o; cvt.u64.u32 %o, %row; add.u64 %a, %a, %o; setp.lt.u32 %q, %row, 3; "
        f"setp.eq.u32 %p, %lane, 0; and.pred %q, %q, %p; @%q ld.u8 %v, [%a]; "
        f"setp.eq.u32 %q, %row, 3; and.pred %q, %q, %p; {at} @%q st.u8 [%a+{first}], 1;"
    )
    kernel = EmulatorKernel(h200(), binary_of(entry(ROWS + start + late)))
    arrays = {"in": aligned(1024), "out": aligned(1024, 0xA5)}
    config = LaunchConfig((grid[0], 1, 1), (grid[1], 1, 1), 0, (BufferArg("in"), BufferArg("out")))
    with pytest.raises(Red) as caught:
        kernel.launch(config, regions_of(arrays, initialised=True))
    assert caught.value.reason == "race"
    assert "write not ordered after a read" in caught.value.detail


def test_a_byte_that_was_read_before_the_last_reads_is_remembered() -> None:
    """Warp 0 reads two halves of a word at two times; warp 1 has waited for neither, or for the first."""
    body = f"""{ROWS} setp.eq.u32 %p, %row, 0; setp.eq.u32 %q, %t, 0;
        @%q st.shared.u32 [block], 0; bar.sync 0;
        @%p ld.shared.u16 %v, [block]; FIRST @%p ld.shared.u16 %v, [block+2];
        setp.eq.u32 %q, %t, 32; @%q st.shared.u16 [block+WHERE], 1;"""

    def write(where: int, first: str) -> str:
        return verdict(body.replace("WHERE", str(where)).replace("FIRST", first), 1, 64)

    assert (write(0, "bar.warp.sync -1;"), write(2, "bar.warp.sync -1;")) == ("race", "race")
    assert (write(0, "bar.sync 1;"), write(2, "bar.sync 1;")) == ("GREEN", "race")


@pytest.mark.parametrize("lanes", [32, 31], ids=["whole warp", "part of a warp"])
@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("0", "@%p st.shared.u16 [%i], 1;", "GREEN"),  # over what the lane itself has read
        ("0", "bar.warp.sync -1; @%p st.shared.u16 [%v], 1;", "GREEN"),  # over what its neighbour has read
        ("0", "setp.eq.u32 %q, %t, 45; @%q st.shared.u16 [%v], 1;", "race"),  # another warp
        ("0", "bar.sync 0; setp.eq.u32 %q, %t, 45; @%q st.shared.u16 [%v], 1;", "GREEN"),
        ("1", "", "uninitialised read"),  # of the first half
    ],
)
def test_halves_of_words_belong_to_the_lanes_that_read_them(
    lanes: int, first: str, then: str, expected: str
) -> None:
    """Lanes of warp 0 read a half of a word each; %i is the lane's own half, %v the other one of its word."""
    body = f"""{ROWS} .reg .b16 %x; mov.u32 %n, block; mad.lo.u32 %i, %lane, 2, %n; xor.b32 %v, %i, 2;
        setp.ge.u32 %p, %t, {first}; setp.eq.u32 %q, %row, 0; and.pred %p, %p, %q;
        @%p st.shared.u16 [%i], %lane; bar.sync 0; setp.lt.u32 %p, %t, {lanes};
        @%p ld.shared.u16 %x, [%i]; {then}"""
    assert verdict(body, 1, 64) == expected


@pytest.mark.parametrize("jobs", [1, 4])
def test_many_owners_of_every_word(jobs: int) -> None:
    """64 CTAs write a byte of every word in turn, and read it."""
    device = EmulatorDevice(KNOWN_GPUS["H200"], jobs=jobs)
    body = f"""{ROWS} .reg .b64 %o; mad.wide.u32 %a, %lane, 64, %out; cvt.u64.u32 %o, %row;
        add.u64 %a, %a, %o; st.global.u8 [%a], %row; ld.global.u8 %v, [%a]; st.global.u8 [%a], %v;"""
    out = aligned(32 * 64, 0xA5)
    kernel = EmulatorKernel(device, binary_of(entry(body)))
    config = LaunchConfig((64, 1, 1), (32, 1, 1), 0, (BufferArg("in"), BufferArg("out")))
    kernel.launch(config, regions_of({"in": aligned(16), "out": out}))
    assert out.reshape(32, 64).tolist() == np.tile(np.arange(64), (32, 1)).tolist()
