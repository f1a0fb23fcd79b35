"""check, hint, reveal, progress and txcourse.mine as a learner meets them."""

import sys
from pathlib import Path

import pytest
import torch

import txcourse
from tests.learner.conftest import Notebook
from txcourse import exercises, mine
from txcourse.errors import UserError
from txcourse.learner import answers, course, status
from txcourse.learner.workspace import VARIABLE, Workspace, find

RIGHT = "def causal_mask(length):\n    return torch.ones(length, length, dtype=torch.bool).tril()\n"
WRONG = "def causal_mask(length):\n    return torch.ones(length, length, dtype=torch.bool).triu()\n"
STUB = "def causal_mask(length):\n    raise NotImplementedError\n"
CHECK = "causal_mask = check(causal_mask)"


@pytest.fixture(autouse=True)
def imports(notebook: Notebook) -> None:
    notebook.run("import torch\nfrom txcourse import check, hint, reveal, progress")


def test_a_wrong_answer_then_the_right_one(
    work: Workspace, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.run(WRONG)
    notebook.run(CHECK)
    shown = capsys.readouterr().out
    assert "not yet" in shown and "The cells below use the reference for causal_mask." in shown
    assert notebook.names["causal_mask"] is exercises.get("causal_mask").reference
    assert status("causal_mask") == "tried" and not work.answers.exists()
    notebook.run(RIGHT)
    own = notebook.names["causal_mask"]
    notebook.run(CHECK)
    shown = capsys.readouterr().out
    assert "passed" in shown and "Stored in work/my_transformer/attention.py" in shown.replace("\\", "/")
    assert notebook.names["causal_mask"] is own and status("causal_mask") == "done"


def test_a_stub_is_open_and_the_reference_takes_its_place(
    work: Workspace, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.run(STUB)
    notebook.run(CHECK)
    shown = capsys.readouterr().out
    assert len(shown.strip().splitlines()) == 2 and "ot started" in shown
    assert notebook.names["causal_mask"](2).tolist() == [[True, False], [True, True]]
    assert status("causal_mask") == "open"


def test_the_check_run_twice(work: Workspace, notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    for cell in (WRONG, CHECK, CHECK):
        notebook.run(cell)
    shown = capsys.readouterr().out
    assert shown.endswith(
        "causal_mask is the reference at the moment. Run the cell with your answer, then this one.\n"
    )
    assert work.record("causal_mask")["tries"] == 1


def test_without_a_workspace_nothing_is_written(
    tmp_path: Path, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find() is None
    notebook.run(RIGHT)
    notebook.run(CHECK)
    assert "kept for this session only" in capsys.readouterr().out
    notebook.run("from txcourse.mine import causal_mask as again")
    assert notebook.names["again"] is notebook.names["causal_mask"]
    notebook.run(CHECK)
    assert "kept" not in capsys.readouterr().out  # said once
    notebook.run("hint('padding_mask'); reveal('causal_mask'); progress()")
    assert list(tmp_path.iterdir()) == [] and status("causal_mask") == "done"


def test_an_empty_variable_means_no_workspace(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work.root)
    assert find() == work
    monkeypatch.setenv(VARIABLE, "")
    assert find() is None
    monkeypatch.delenv(VARIABLE)
    (work.root / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(work.root / "a" / "b")
    assert find() == work


def test_another_cells_helper(
    work: Workspace, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.run("def triangle(n):\n    return torch.ones(n, n, dtype=torch.bool).tril()")
    notebook.run("def causal_mask(length):\n    return triangle(length)")
    notebook.run(CHECK)
    assert "uses `triangle`, defined in another cell; move it into this one" in capsys.readouterr().out
    assert mine.causal_mask is notebook.names["causal_mask"] and not work.answers.exists()


def test_a_full_disk_is_told_in_one_line(
    work: Workspace, notebook: Notebook, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    notebook.run(RIGHT)
    notebook.run(CHECK)
    assert "No space left on device" in capsys.readouterr().out
    assert [f for f in work.root.rglob("*") if f.is_file()] == []
    assert mine.causal_mask is notebook.names["causal_mask"]


def test_check_of_something_else(notebook: Notebook) -> None:
    with pytest.raises(UserError, match="`anything` is none"):
        notebook.run("def anything(): pass\ncheck(anything)")
    assert UserError("one line")._render_traceback_() == ["one line"]


def test_an_answer_under_another_name(work: Workspace, notebook: Notebook) -> None:
    notebook.run(RIGHT.replace("causal_mask", "mine_now") + "causal_mask = mine_now")
    notebook.run(CHECK)
    assert "causal_mask = mine_now" in answers.answer_file(work, "03_attention").read_text()


# txcourse.mine


def stored(work: Workspace, name: str, block: str) -> None:
    answers.store(work, exercises.get(name).notebook, name, block, exercises.names())


def test_mine_gives_yours_or_the_reference_and_says_which(
    work: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(work, "causal_mask", "import torch\n" + RIGHT)
    assert mine.causal_mask.__module__ == "my_transformer.attention"
    assert mine.padding_mask is exercises.get("padding_mask").reference
    said = capsys.readouterr().out.replace("\\", "/")
    assert said == (
        "causal_mask: yours, from my_transformer/attention.py\n"
        "padding_mask: the reference; its check has not passed yet\n"
    )
    assert mine.causal_mask(2).tolist() == [[True, False], [True, True]]
    assert capsys.readouterr().out == ""  # said once


def test_mine_sees_a_replaced_answer_at_once(work: Workspace) -> None:
    stored(work, "causal_mask", "def causal_mask(length):\n    return 1")
    assert mine.causal_mask(2) == 1
    stored(work, "causal_mask", "def causal_mask(length):\n    return 2")
    assert mine.causal_mask(2) == 2


def test_a_stored_part_that_no_longer_imports(work: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    stored(work, "causal_mask", RIGHT)
    file = answers.answer_file(work, "03_attention")
    file.write_text(file.read_text() + "\nimport no_such_module\n")
    assert mine.causal_mask is exercises.get("causal_mask").reference
    said = capsys.readouterr().out
    assert "does not import (ModuleNotFoundError" in said and "run its check again in 03_attention" in said


def test_mine_has_exercises_only() -> None:
    with pytest.raises(ImportError):
        from txcourse.mine import nonsense  # noqa: F401
    assert "causal_mask" in dir(mine)


def test_a_reference_is_made_of_the_learners_parts(
    work: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(
        work,
        "scaled_dot_product_attention",
        "import torch\ndef scaled_dot_product_attention(query, key, value, mask=None):\n"
        "    weights = torch.full((*query.shape[:-1], key.shape[-2]), 1 / key.shape[-2])\n"
        "    return weights @ value, weights",
    )
    heads = mine.MultiHeadAttention
    assert heads is mine.MultiHeadAttention and heads is not exercises.get("MultiHeadAttention").reference
    attention = heads(4, 2)
    attention(torch.randn(1, 3, 4), torch.randn(1, 5, 4), torch.randn(1, 5, 4))
    assert torch.allclose(attention.weights, torch.tensor(1 / 5))
    assert mine.LayerNorm is exercises.get("LayerNorm").reference
    assert (
        "MultiHeadAttention: the reference, made with your scaled_dot_product_attention; its"
        in capsys.readouterr().out
    )


def test_whose_a_part_is(work: Workspace) -> None:
    stored(work, "ResidualConnection", "from torch import nn\nclass ResidualConnection(nn.Module):\n    pass")
    assert mine.origin(mine.ResidualConnection()) == "yours"
    assert mine.origin(mine.LayerNorm(3)) == "reference" and mine.origin(torch.nn.Linear(1, 1)) == "library"


def test_whose_code_runs_in_a_model(work: Workspace) -> None:
    """Functions that the modules call count too, inside lambdas and under decorators as well."""
    stored(
        work,
        "scaled_dot_product_attention",
        "def scaled_dot_product_attention(query, key, value, mask=None):\n    return value, _scale(query)\n\n\n"
        "def _scale(query):\n    return query",
    )
    heads = mine.MultiHeadAttention(4, 2)
    assert mine.parts(heads) == {
        "MultiHeadAttention": "reference",
        "Linear": "library",
        "Dropout": "library",
        "split_heads": "reference",
        "scaled_dot_product_attention": "yours",
        "merge_heads": "reference",
        "_scale": "yours",
    }
    both = torch.nn.Sequential(heads, exercises.get("MultiHeadAttention").reference(4, 2))
    assert mine.parts(both)["scaled_dot_product_attention"] == "yours and reference"


def test_parts_that_ask_for_each_other(work: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    stored(work, "causal_mask", "def causal_mask(length):\n    return softmax(length)")
    stored(work, "softmax", "def softmax(x, dim=-1):\n    return causal_mask(x)")
    assert mine.causal_mask.__module__ == "my_transformer.attention"
    sys.modules.pop("my_transformer.attention", None)


# hints, the reference, the map


def test_hints_are_a_ladder(work: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    hints = exercises.get("causal_mask").hints
    for number in (1, 2, 3, 3):
        txcourse.hint("causal_mask")
        said = capsys.readouterr().out
        assert said.startswith(f"Hint {number} of 3 for causal_mask: {hints[number - 1]}")
    assert 'reveal("causal_mask")' in said


def test_reveal_before_and_after_the_pass(
    work: Workspace, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    txcourse.reveal("causal_mask")
    assert "still open" in capsys.readouterr().out
    txcourse.reveal("causal_mask", sure=True)
    assert "def causal_mask" in capsys.readouterr().out
    notebook.run(RIGHT)
    notebook.run(CHECK)
    capsys.readouterr()
    notebook.run("reveal(causal_mask)")
    said = capsys.readouterr().out
    assert said.count("def causal_mask") == 2 and "--- causal_mask: yours ---" in said


def test_a_name_that_is_no_exercise() -> None:
    with pytest.raises(UserError, match="no exercise `casual_mask`"):
        txcourse.hint("casual_mask")


def test_the_map(work: Workspace, notebook: Notebook) -> None:
    notebook.run(RIGHT)
    notebook.run(CHECK)
    work.set_record("padding_mask", tries=2)
    text, page = str(txcourse.progress()), txcourse.progress()._repr_html_()
    assert text.startswith("1 of ")
    for line in ("[x] causal_mask", "[~] padding_mask", "[ ] attention_by_loops"):
        assert line in text
    assert "[x] done" in page and "[~] tried" in page
    listed = txcourse.progress().to_dict()["exercises"]
    assert [e["name"] for e in listed] == exercises.names()
    assert {e["state"] for e in listed if e["name"] == "padding_mask"} == {"tried"}
    stars = [line.split()[2] for line in text.splitlines() if line.endswith("  ★")]
    assert stars == ["rotary_embedding", "KeyValueCache"] and page.count("★") == 3
    assert text.endswith("nothing later needs it")


def test_records_survive_a_broken_file(work: Workspace) -> None:
    work.set_record("causal_mask", tries=1)
    (work.root / ".txcourse" / "exercises" / "causal_mask.json").write_text("{")
    assert course.status("causal_mask", work) == "open"
    work.set_record("causal_mask", passed=True)
    assert course.status("causal_mask", work) == "done"
