"""`evo` in a notebook that nbconvert executes: a kernel is tuned, the view is an output of the cell, and an
interrupt gives the study."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import ROOT

from evo.report.screen import Drawing, NotebookScreen, NotebookView

INTERRUPTED = """
import os, signal, threading, time

def interrupt():
    while True:
        time.sleep(0.2)
        try:
            if len(evo.load_study("long").trials()) >= 2:
                return os.kill(os.getpid(), signal.SIGINT)  # as a notebook's interrupt does
        except evo.errors.EvoError:
            pass

threading.Thread(target=interrupt, daemon=True).start()
long = evo.search("attention", shape="1,1,16,32", budget="10m", device="emulator", workers=1, study="long")
print(long.status, len(long.trials()) >= 2)
"""


def executed(folder: Path, *cells: str) -> list[list[dict[str, Any]]]:
    """The outputs of each cell."""
    code: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"cell-{number}", "metadata": {}, "source": text, "outputs": [],
         "execution_count": None}
        for number, text in enumerate(cells)
    ]  # fmt: skip
    page = {"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "page.ipynb").write_text(json.dumps(page))
    words = ["nbconvert", "--to", "notebook", "--execute", "--output", "done.ipynb", "page.ipynb"]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return [cell["outputs"] for cell in json.loads((folder / "done.ipynb").read_text())["cells"]]


@pytest.mark.slow  # a notebook's kernel and two searches, each with processes of its own
@pytest.mark.nvcc
def test_a_notebook_tunes_a_kernel_and_is_interrupted(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)[0]
    tuned, shown, interrupted = executed(tmp_path, code, "study", INTERRUPTED)
    for outputs in (tuned, interrupted):
        (view,) = [output["data"] for output in outputs if output["output_type"] == "display_data"]
        assert "".join(view["text/html"]).startswith("<pre")
        assert re.search(r"^budget +.* of .*\n *trials +\d", "".join(view["text/plain"]), re.MULTILINE)
        assert not [output for output in outputs if output.get("name") == "stderr"]
    assert "3 · " in "".join(
        text for output in tuned if "data" in output for text in output["data"]["text/plain"]
    )
    assert "".join(shown[0]["data"]["text/plain"]).startswith("<Study add-1 ")
    assert "interrupted True\n" in "".join(interrupted[-1]["text"])


class Handle:
    """A display of a notebook that keeps what it is given."""

    def __init__(self) -> None:
        self.drawn: list[Drawing] = []

    def __call__(self, drawing: Drawing, *, display_id: bool) -> Handle:
        assert display_id
        self.drawn.append(drawing)
        return self

    def update(self, drawing: Drawing) -> None:
        self.drawn.append(drawing)


def test_the_view_of_a_notebook_is_drawn_anew_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    from test_live import NOW

    display = Handle()
    with NotebookScreen(display).view() as view:
        assert isinstance(view, NotebookView)
        for _ in range(5):
            view.show(NOW)
    assert len(display.drawn) == 2, "at once, and at the end"
    assert "budget" in repr(display.drawn[0])
    assert display.drawn[1]._repr_html_().startswith('<pre style="line-height: normal">')
    NotebookScreen(display).notice("one \x1b[2J line")
    assert capsys.readouterr().out == "one \\x1b[2J line\n"
