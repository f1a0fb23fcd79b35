"""The learner's loop in a real kernel, with a class (whose source `inspect` does not find on Python 3.11)."""

import os

import nbformat
from nbclient import NotebookClient

from txcourse.learner.workspace import VARIABLE, Workspace

LINEAR = """# my own
class Linear(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in) / math.sqrt(d_in))
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias

print("a test of my own")
"""


def test_a_class_is_stored_from_a_kernel(work: Workspace) -> None:
    cells = [
        "import math\nimport torch\nfrom torch import nn\nfrom txcourse import check, hint, progress, reveal",
        LINEAR.replace("y + self.bias", "y - self.bias"),
        "Linear = check(Linear)",
        LINEAR,
        "Linear = check(Linear)",
        "reveal(Linear)",
        "progress()",
        'hint("no_such_exercise")',
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    environment = os.environ | {VARIABLE: str(work.root)}
    NotebookClient(notebook, timeout=120, allow_errors=True).execute(env=environment, cwd=str(work.root))

    def shown(number: int) -> str:
        outputs = notebook.cells[number].outputs
        data = [out.get("data", {}) for out in outputs]
        errors = [out.get("evalue", "") for out in outputs]
        return "\n".join([*errors, *(d.get("text/html", "") + d.get("text/plain", "") for d in data)])

    assert "not yet" in shown(2) and "reference" in shown(2)
    assert "passed" in shown(4) and "my_transformer" in shown(4)
    assert "display:flex" in shown(5) and "# my own" in shown(5)
    assert "[x] done" in shown(6)
    assert notebook.cells[7].outputs[-1].traceback == [
        "there is no exercise `no_such_exercise`; `txcourse progress` (or progress()) lists them"
    ]
    text = (work.answers / "start_here.py").read_text(encoding="utf-8")
    assert "import math\nimport torch\nfrom torch import nn\n\n\n# my own\nclass Linear(nn.Module):" in text
    assert "y + self.bias" in text and "print" not in text and "y - self.bias" not in text
