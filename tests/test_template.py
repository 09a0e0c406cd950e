"""Templates: what renders, and that broken ones are refused with file, line and a hint."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.errors import BadTemplate, UnknownName, UsageError
from evo.gpu import Limits, target
from evo.task import Task, list_tasks, load_task
from evo.template import Template, list_templates, load_template
from evo.template.include import Includes
from evo.trial import body_of

HERE = Path(__file__).parent
PLANTED = (HERE / "templates",)
TASK = load_task("attention")
MISSION = TASK.example


def _every_template() -> list[tuple[Task, str, tuple[Path, ...]]]:
    own = [(load_task(task), name, ()) for task in list_tasks() for name in list_templates(task)]
    return [*own, (TASK, "naive", PLANTED)]


EVERY = _every_template()
MADE_FOR = dict.fromkeys(("gemm_skinny", "gemv"), load_task("gemm").problem("8,4096,4096,1"))
every_template = pytest.mark.parametrize(
    ("task", "name", "folders"), EVERY, ids=[name for _, name, _ in EVERY]
)


@every_template
def test_holes_are_the_parameters_and_the_derived_values(
    task: Task, name: str, folders: tuple[Path, ...]
) -> None:
    template = load_template(task, name, folders)
    parameters = {p.name for p in template.space.parameters}
    unused = parameters | template.derived(template.space.default, task.example).keys()
    assert template.holes() <= unused
    in_launch = {n for n in parameters - template.holes() if _changes_the_launch(template, n)}
    assert unused - template.holes() == in_launch, "neither the source nor the launch uses these"


def _changes_the_launch(template: Template, name: str) -> bool:
    default, problem = template.space.default, template.task.example
    launches = {
        str(template.launch({**default, name: value}, problem)) for value in template.space[name].values
    }
    return len(launches) > 1


@every_template
def test_the_default_point_is_feasible_at_the_example(
    task: Task, name: str, folders: tuple[Path, ...]
) -> None:
    template = load_template(task, name, folders)
    gpu = next(t for t in ("sm_89", "sm_90a", "sm_120") if Limits.of(target(t)).allows(template.needs))
    limits = Limits.of(target(gpu))
    problem = MADE_FOR.get(name, task.example)
    assert template.supports(problem, limits) is None
    for point in (template.space.default, template.space.default_for(problem, limits)):
        assert template.space.why_not(point, limits, problem) is None


@every_template
def test_rendering_is_deterministic_and_self_contained(
    task: Task, name: str, folders: tuple[Path, ...]
) -> None:
    candidates = [
        load_template(task, name, folders).candidate(
            load_template(task, name, folders).space.default, task.example
        )
        for _ in range(2)
    ]
    source = candidates[0].source
    assert candidates[0].digest == candidates[1].digest
    assert not re.search(r'^\s*#\s*include\s*"', source, re.MULTILINE)
    assert str(HERE.parent) not in source
    assert source.startswith("// evo ")
    assert body_of(source)
    assert body_of(source) in source


def _naive() -> Template:
    return load_template(TASK, "naive", PLANTED)


def test_values_are_written_as_cpp() -> None:
    causal = TASK.problem("1,2,100,32", "bf16", causal=True)
    source = _naive().candidate(_naive().space.default, causal).source
    assert "constexpr bool kCausal = true;" in source
    assert "using Element = __nv_bfloat16;" in source
    assert "constexpr int kSmemBytes = 2048;" in source


def test_the_provenance_names_template_problem_and_point() -> None:
    template = _naive()
    source = template.candidate({"dead": 2, "unroll": 4, "rows": 32}, MISSION).source
    head = source.partition("\n\n")[0]
    assert "attention/naive" in head
    assert MISSION.key in head
    assert '"rows":32' in head
    assert "constexpr int kRows = 32" not in head


def test_two_problems_share_a_body_when_nothing_of_them_is_baked() -> None:
    template = _naive()
    point = template.space.default
    one, two = (template.candidate(point, p) for p in (MISSION, MISSION.replace(L=100, H=2)))
    assert body_of(one.source) == body_of(two.source)
    assert one.digest != two.digest
    assert two.launch.grid == (7, 2, 1)


def test_a_point_that_is_not_of_the_space_is_refused() -> None:
    with pytest.raises(UsageError):
        _naive().candidate({"rows": 48, "unroll": 1, "dead": 0}, MISSION)


@pytest.mark.nvcc
def test_the_planted_template_compiles_with_bare_nvcc(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH")
    source = tmp_path / "naive.cu"
    source.write_text(_naive().candidate(_naive().space.default, MISSION).source)
    subprocess.run([nvcc, "-arch=sm_80", "-cubin", "-o", str(tmp_path / "x.cubin"), str(source)], check=True)


def test_unknown_names_get_the_known_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        load_template(TASK, "naiv", PLANTED)
    assert "naive" in caught.value.hint
    for name in ("../naive", "naive/../naive", "", "/etc/passwd"):
        with pytest.raises(UnknownName):
            load_template(TASK, name, PLANTED)


PYTHON = (HERE / "templates/attention/naive.py").read_text()
BODY = 'extern "C" __global__ void naive(int n) { }\n'


def _planted(folder: Path, source: str, python: str = PYTHON) -> Template:
    (folder / "attention").mkdir(exist_ok=True)
    (folder / "include").mkdir(exist_ok=True)
    (folder / "attention/bad.cu.jinja").write_text(source)
    (folder / "attention/bad.py").write_text(python)
    return load_template(TASK, "bad", (folder,))


def _render(folder: Path, source: str, python: str = PYTHON) -> str:
    template = _planted(folder, source + BODY, python)
    return template.candidate(template.space.default, MISSION).source


def test_statements_and_loops_render(tmp_path: Path) -> None:
    source = """//% set twice = rows * 2
//% if causal or twice > 30
int twice = {{ twice }};
//% else
int never;
//% endif
//% for i in range(3)
int x{{ loop.index0 }} = {{ 'true' if i is odd else 'false' }} /* {{ element | upper }} */;
//% endfor
int braces[2][1] = { {1}, {2} };
"""
    text = _render(tmp_path, source)
    assert "int twice = 32;" in text
    assert "never" not in text
    assert "int x1 = true /* __HALF */;\nint x2 = false" in text
    assert "//%" not in text


def test_includes_are_pasted_once_and_not_rendered(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include/one.cuh").write_text(
        '#pragma once\n#include "two.cuh"\n#include <cstdint>\nint one[1][1] = {{1}};\n'
    )
    (tmp_path / "include/two.cuh").write_text('#pragma once\n#include "one.cuh"\nint two;\n')
    text = _render(tmp_path, '#include <cuda_fp16.h>\n#include "one.cuh"\n  # include "two.cuh"\n')
    assert text.count("int two;") == 1
    assert text.count("int one[1][1] = {{1}};") == 1
    assert text.index("int two;") < text.index("int one[1]")
    assert "#include <cuda_fp16.h>" in text
    assert "#include <cstdint>" in text
    assert "pragma once" not in text


@pytest.mark.parametrize(
    "name",
    [
        "../attention/bad.py",
        "/etc/passwd",
        "a/../../attention/bad.py",
        "..",
        "",
        "link.cuh",
        "absent.cuh",
        "~/x",
    ],
)
def test_includes_from_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "include").mkdir()
    (tmp_path / "include/link.cuh").symlink_to(tmp_path / "secret")
    with pytest.raises(BadTemplate, match=r"bad\.cu\.jinja:2: ") as caught:
        _render(tmp_path, f'int x;\n#include "{name}"\n')
    assert "include" in caught.value.hint


REFUSED = {
    "syntax error": "int x = {{ rows ;",
    "hole without a parameter": "int x = {{ rowz }};",
    "unclosed if": "//% if rows\nint x;",
    "import": "{% import 'naive.cu.jinja' as other %}",
    "division by zero": "{{ rows // 0 }}",
    "a list in a hole": "{{ [1, 2] }}",
    "no number": "{{ rows * 1e999 }}",
    "a type error": "{{ rows + element }}",
    "too many digits": "{{ 10 ** 5000 }}",
    "deep nesting": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "call of a hole": "{{ element() }}",
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED.keys())
def test_broken_sources_are_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(BadTemplate, match=r"bad\.cu\.jinja:\d+: ") as caught:
        _render(tmp_path, source + "\n")
    assert caught.value.hint


UNRESOLVED = {
    "digraph": '%:include "{0}"',
    "absolute, in angle brackets": "#include <{1}>",
    "relative, in angle brackets": "#include <../{0}>",
    "deep, in angle brackets": "#include <cuda/../../{0}>",
    "macro": '#define FILE "{0}"\n#include FILE',
    "macro with arguments": "#define FILE(x) #x\n#include FILE({0})",
    "comment before the word": '#/**/include "{0}"',
    "comment behind the word": '#include/**/"{0}"',
    "comment before the directive": '/* */ #include "{0}"',
    "comment of two lines": '#/*\n*/include "{0}"',
    "splice in the word": '#incl\\\nude "{0}"',
    "splice behind the word": '#include \\\n"{0}"',
    "splice before blanks": '#include \\  \n"{0}"',
    "form feed": '#\finclude "{0}"',
    "vertical tab": '#include\v"{0}"',
    "form feed first": '\f#include "{0}"',
    "next": '#include_next "{0}"',
    "next in angle brackets": "#include_next <{0}>",
    "import": '#import "{0}"',
    "import in angle brackets": "#import <{1}>",
    "text before": '#include L"{0}"',
    "nothing": "#include",
}


@pytest.mark.parametrize("spelling", UNRESOLVED.values(), ids=UNRESOLVED.keys())
def test_no_include_stays_unresolved(tmp_path: Path, spelling: str) -> None:
    """Whatever is not pasted and not the toolkit's is refused, so a stored source needs no other file."""
    planted = tmp_path / "planted.cuh"
    planted.write_text("int planted;\n")
    with pytest.raises(BadTemplate, match=r"bad\.cu\.jinja:\d+: refused") as caught:
        _render(tmp_path, "int x;\n" + spelling.format("planted.cuh", planted) + "\n")
    assert "#include <NAME>" in caught.value.hint or "include folder" in caught.value.hint


def test_words_in_comments_and_texts_are_no_includes(tmp_path: Path) -> None:
    lines = (
        "// what is important: #include <../x> is not written\n"
        '/* #include <../a>\n#include_next <b> */ const char* t = "#include <../c>";\n'
        '#include <cuda/std/array>  // included "for" std::array\n'
        "#if __has_include(<cuda_bf16.h>)\n#endif\n"
    )
    assert lines in _render(tmp_path, lines)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text("#%:include_next<>\"/*\\ \n\t\f\v'R()x.h", max_size=60))
def test_any_text_is_pasted_or_refused(text: str) -> None:
    try:
        said = Includes("attention", ()).paste(text, EVERY_PATH)
    except BadTemplate as error:
        said = error.message
    refused = re.match(r".*\.cu\.jinja:\d+: ", said)
    assert refused or not re.search(r'^[ \t]*#[ \t]*include[ \t]*"', said, re.MULTILINE)


EVERY_PATH = HERE / "templates/attention/naive.cu.jinja"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("int a;\nint x = {{ rows ;\n", 2),
        ("\n\nint x = {{ rowz }};\n", 3),
        ("int a;\n\n\n{{ rows // 0 }}\n", 4),
    ],
)
def test_the_line_is_the_right_one(tmp_path: Path, source: str, line: int) -> None:
    with pytest.raises(BadTemplate, match=rf"bad\.cu\.jinja:{line}: "):
        _render(tmp_path, source)


def test_all_of_jinja_may_be_used(tmp_path: Path) -> None:
    source = """//% macro twice(n)
{{ n }}, {{ n }}
//%- endmacro
//% for name in ["a", "b"]
int {{ name }}[2] = { {{ twice(rows) }} };
//% endfor
int n = {{ [rows, 3] | max }}, digits = {{ "%04d" | format(rows) }};
"""
    text = _render(tmp_path, source)
    assert "int b[2] = { 16, 16 };" in text
    assert "int n = 16, digits = 0016;" in text


PYTHON_REFUSED = {
    "syntax error": (
        "def broken(:\n",
        r"bad\.py:\d+: ",
    ),
    "raises": (
        "x = 1 // 0\n",
        r"bad\.py:\d+: ZeroDivisionError",
    ),
    "malformed parameter": (
        "SPACE = Space((Parameter('rows', (32,), 64),))\n",
        r"bad\.py:\d+: .*no value 64",
    ),
    "malformed arch": (
        "NEEDS = 'ampere'\n",
        "malformed architecture",
    ),
    "nothing defined": (
        "del SPACE, ENTRY\n",
        "does not define SPACE, ENTRY",
    ),
    "derived raises": (
        "def derived(p, problem):\n    return {'x': p.rowz}\n",
        r"bad\.py:\d+: there is no parameter",
    ),
    "derived clashes": (
        "def derived(p, problem):\n    return {'rows': 1}\n",
        "named like parameters: rows",
    ),
    "smem model lies": (
        "def smem_bytes(p, problem):\n    return 0\n",
        "launch has smem_bytes 16384, the model",
    ),
    "launch gives nothing": (
        "def launch(p, problem, gpu):\n    return None\n",
        "launch gave NoneType",
    ),
    "entry absent": (
        "ENTRY = 'kernel'\n",
        "no function kernel",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("addition", "message"), PYTHON_REFUSED.values(), ids=PYTHON_REFUSED.keys())
def test_broken_python_files_are_refused(tmp_path: Path, addition: str, message: str) -> None:
    python = PYTHON + addition
    if "smem model" in message or "launch has" in message:
        python = PYTHON.replace("smem_bytes=smem_bytes(p, problem)", "smem_bytes=16384") + addition
    with pytest.raises(BadTemplate, match=message):
        _render(tmp_path, "", python)


def test_a_template_without_its_python_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention/bad.cu.jinja").write_text(BODY)
    with pytest.raises(BadTemplate, match=r"no bad\.py beside it"):
        load_template(TASK, "bad", (tmp_path,))


def test_a_rule_that_rejects_everything_says_so(tmp_path: Path) -> None:
    python = PYTHON.replace('return (p.rows <= 8) | (p.rows <= 2 * problem["L"])', "return p.rows < 0")
    assert python != PYTHON
    template = _planted(tmp_path, BODY, python)
    feasible = template.space.feasible(Limits.of(target("sm_89")), MISSION)
    assert feasible.count == 0
    with pytest.raises(UsageError, match="no point is feasible"):
        feasible.require_some()


def test_own_folders_come_before_evos(tmp_path: Path) -> None:
    _planted(tmp_path, BODY)
    assert set(list_templates("attention", (tmp_path,))) == {"bad", *list_templates("attention")}
