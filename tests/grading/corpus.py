"""Submissions as they should not be: files of every kind, with the marks that they should get.

Two exercises are asked for, one point each. Every kind writes its files and says for each student
the state and the points; a student's name is the kind's unless the kind is about names.
"""

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.grading.making import IMPORTS, Source, answers, notebook, solved, text
from txcourse.grading import submissions

ASKED = ("padding_mask", "causal_mask")
PADDING, CAUSAL = (solved(name) for name in ASKED)
RIGHT = answers(padding_mask=None, causal_mask=None)
CELLS: tuple[Source, ...] = (
    IMPORTS,
    ("padding_mask", PADDING),
    "padding_mask = check(padding_mask)",
    ("causal_mask", CAUSAL),
    "causal_mask = check(causal_mask)",
)
Expected = tuple[str, float]
FULL: Expected = ("graded", 2.0)
UNREADABLE: Expected = ("unreadable", 0.0)
KINDS: dict[str, Callable[[Path], dict[str, Expected]]] = {}


def _kind(name: str, content: str | bytes, expected: Expected, suffix: str = ".ipynb") -> None:
    """A kind that is one file."""

    def make(folder: Path) -> dict[str, Expected]:
        (folder / f"{name}{suffix}").write_bytes(content.encode() if isinstance(content, str) else content)
        return {name: expected}

    KINDS[name] = make


def _made(make: Callable[[Path], dict[str, Expected]]) -> Callable[[Path], dict[str, Expected]]:
    KINDS[make.__name__] = make
    return make


def zipped(files: dict[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


# Files that are no notebook

_kind("empty", "", UNREADABLE)
_kind("blank", " \n\n", UNREADABLE)
_kind("cut_off", RIGHT[: len(RIGHT) // 2], UNREADABLE)
_kind("merge_conflict", "<<<<<<< HEAD\n" + RIGHT + "\n=======\n" + RIGHT + "\n>>>>>>> theirs\n", UNREADABLE)
_kind("picture", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), UNREADABLE)
_kind("pdf", b"%PDF-1.7\n\xe2\xe3\xcf\xd3\n", UNREADABLE)
_kind("zeros", b"\0" * 4096, UNREADABLE)
_kind("web_page", "<!doctype html><title>Sign in</title>", UNREADABLE)
_kind("json_list", "[1, 2]", UNREADABLE)
_kind("cells_no_list", '{"cells": {"0": 1}, "nbformat": 4}', UNREADABLE)
_kind("nested_json", "[" * 100_000 + "]" * 100_000, UNREADABLE)
_kind("a_zip_by_name", b"no zip at all", UNREADABLE, ".zip")
_kind("a_zip_that_is_cut_off", zipped({"hw.ipynb": RIGHT})[:-40], UNREADABLE, ".zip")
_kind("an_empty_zip", zipped({}), UNREADABLE, ".zip")
_kind("bomb", zipped({"hw.ipynb": b" " * (submissions.LARGEST + 1)}), UNREADABLE, ".zip")
_kind(
    "bomb_in_a_zip",
    zipped({"a.zip": zipped({"hw.ipynb": b" " * (submissions.LARGEST + 1)})}),
    UNREADABLE,
    ".zip",
)
_kind("large_zip_in_a_zip", zipped({"a.zip": b"\0" * (submissions.LARGEST_ZIP + 1)}), UNREADABLE, ".zip")


@_made
def zips_in_zips(folder: Path) -> dict[str, Expected]:
    inner = zipped({"hw.ipynb": RIGHT})
    for _ in range(submissions.DEEPEST + 1):
        inner = zipped({"again.zip": inner})
    (folder / "zips_in_zips.zip").write_bytes(inner)
    return {"zips_in_zips": UNREADABLE}


@_made
def folders_named_ipynb(folder: Path) -> dict[str, Expected]:
    (folder / "a_folder.ipynb").mkdir()
    (folder / "with_a_file.ipynb").mkdir()
    (folder / "with_a_file.ipynb" / "hw.py").write_text(CAUSAL)
    (folder / "with_the_notebook.ipynb").mkdir()
    (folder / "with_the_notebook.ipynb" / "hw.ipynb").write_text(RIGHT)
    return {"a_folder": UNREADABLE, "with_a_file": ("missing", 0.0), "with_the_notebook": FULL}


if os.name != "nt":

    @_made
    def links_and_pipes(folder: Path) -> dict[str, Expected]:
        outside = folder.parent / "outside"
        outside.mkdir(exist_ok=True)
        (outside / "reference.ipynb").write_text(RIGHT)
        (folder / "link_out.ipynb").symlink_to(outside / "reference.ipynb")
        (folder / "link_to_itself.ipynb").symlink_to("link_to_itself.ipynb")
        (folder / "link_to_a_device.ipynb").symlink_to("/dev/zero")
        (folder / "linked_folder").symlink_to(outside)
        os.mkfifo(folder / "pipe.ipynb")
        names = ("link_out", "link_to_itself", "link_to_a_device", "pipe")
        return dict.fromkeys(names, UNREADABLE)

    @_made
    def odd_names(folder: Path) -> dict[str, Expected]:
        names = ("the \"first\" 'student'", "two\nlines", "🦊 fox", "שרה", "=cmd|' '!A1", "<script>alert(1)<\\script>", "&amp;", "{{ 7 * 7 }}", "a,b;c", "CON", "ada", "Ada", "x" * 200, "\udcff")  # fmt: skip
        for name in names:
            (folder / f"{name}.ipynb").write_text(RIGHT)
        return {submissions.clean(name): FULL for name in names}


# Notebooks of another form, with right answers

_kind("right", RIGHT, FULL)
_kind("format_5", text(*CELLS, nbformat=5), FULL)
_kind("format_of_words", text(*CELLS, nbformat="four", nbformat_minor=None), FULL)
_kind("no_format", json.dumps({"cells": notebook(*CELLS)["cells"]}), FULL)
_kind("byte_order_mark", b"\xef\xbb\xbf" + RIGHT.encode(), FULL)
_kind("utf_16", RIGHT.encode("utf-16"), FULL)
_kind("lines_of_windows", RIGHT.replace("\\n", "\\r\\n"), FULL)
_kind(
    "odd_cells",
    json.dumps(
        {
            "cells": [
                3,
                None,
                [],
                {"cell_type": "code", "source": 7, "metadata": 7},
                *notebook(*CELLS)["cells"],
            ]
        }
    ),
    FULL,
)
_kind("nine_megabytes_of_output", text(*CELLS, metadata={"x": "y" * 9 * 2**20}), FULL)
_kind("three_thousand_cells", text(*["pass"] * 1500, *CELLS, *["pass"] * 1500), FULL)
_kind(
    "zip_with_paths_upwards",
    zipped({"../../../up.ipynb": RIGHT, "/etc/cron.d/up": "x", "..\\..\\up.txt": "x"}),
    FULL,
    ".zip",
)
_kind(
    "marks_in_its_metadata",
    text(
        *CELLS,
        metadata={"txcourse": {"points": 100}, "nbgrader": {"points": 100}, "key": "0", "exercises": []},
    ),
    FULL,
)


@_made
def format_3(folder: Path) -> dict[str, Expected]:
    cells = [
        {"cell_type": "code", "input": c["source"], "language": "python", "outputs": []}
        for c in notebook(*CELLS)["cells"]
    ]
    (folder / "format_3.ipynb").write_text(json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]}))
    return {"format_3": FULL}


# Cells copied, split, pasted and deleted

_kind("no_metadata", text(*(c if isinstance(c, str) else c[1] for c in CELLS)), FULL)
_kind("copies_of_cells", text(*CELLS, CELLS[1], CELLS[3]), FULL)
_kind(
    "a_stub_left_below",
    text(*CELLS, ("causal_mask", "def causal_mask(length):\n    raise NotImplementedError")),
    FULL,
)
_kind(
    "an_answer_below_the_stub",
    text(
        *CELLS[:3],
        ("causal_mask", "def causal_mask(length):\n    raise NotImplementedError"),
        CELLS[4],
        CAUSAL,
    ),
    FULL,
)
_kind("all_in_one_cell", text("\n\n".join(c if isinstance(c, str) else c[1] for c in CELLS)), FULL)
_kind("no_checks", text(*CELLS[:2], CELLS[3]), FULL)
_kind("upside_down", text(*reversed(CELLS)), FULL)
_kind(
    "no_imports_but_stars",
    text("from torch import *\nfrom torch import Tensor\nfrom jaxtyping import *\nimport torch", *CELLS[1:]),
    FULL,
)
_kind(
    "a_helper_elsewhere",
    text(
        IMPORTS,
        "def ones(n):\n    return torch.ones(n, n, dtype=torch.bool)",
        *CELLS[1:3],
        ("causal_mask", "def causal_mask(length):\n    return ones(length).tril()"),
    ),
    FULL,
)
_kind(
    "names_rebound_below",
    text(*CELLS, "torch = None", "causal_mask = None", "def padding_mask(tokens):\n    return 1"),
    FULL,
)
_kind(
    "magic",
    text("%matplotlib inline\n!pip list", CELLS[0], *CELLS[1:3], ("causal_mask", "%%time\n" + CAUSAL)),
    FULL,
)
_kind(
    "annotations_of_the_future",
    text(IMPORTS, *CELLS[1:3], ("causal_mask", "from __future__ import annotations\n" + CAUSAL)),
    FULL,
)

# Something else in the notebook is broken

_kind("a_cell_that_is_no_python", text(IMPORTS, "def f(:", "x = = 1", *CELLS[1:]), FULL)
_kind("cells_of_odd_signs", text(IMPORTS, "'\ud800'", "x = 1\0", "\u202e = 1", *CELLS[1:]), FULL)
_kind("a_cell_of_two_megabytes", text(IMPORTS, "x = 1\n" * 400_000, *CELLS[1:]), FULL)
_kind(
    "a_cell_of_brackets",
    text(IMPORTS, "(" * 5000, "-" * 20_000 + "1", "x = " + "[" * 150 + "]" * 150, *CELLS[1:]),
    FULL,
)
_kind(
    "a_loop_without_end_elsewhere",
    text(IMPORTS, "while True: pass", "import os\nos._exit(0)", *CELLS[1:]),
    FULL,
)
_kind(
    "text_on_stderr",
    text(
        IMPORTS,
        *CELLS[1:3],
        (
            "causal_mask",
            CAUSAL.replace(
                "    return",
                "    import sys, warnings\n    warnings.warn('slow')\n    print('causal', file=sys.stderr)\n    return",
            ),
        ),
    ),
    FULL,
)

# Nothing there, or half of it

_kind(
    "stubs",
    text(
        IMPORTS,
        *(
            ("causal_mask", "def causal_mask(length):\n    raise NotImplementedError"),
            "causal_mask = check(causal_mask)",
        ),
    ),
    ("graded", 0.0),
)
_kind("another_notebook", text("import math\nprint(math.pi)"), ("graded", 0.0))
_kind(
    "answers_in_prose",
    json.dumps({"cells": [{"cell_type": "markdown", "metadata": {}, "source": CAUSAL}]}),
    ("graded", 0.0),
)
_kind("one_answer", text(*CELLS[:3]), ("graded", 1.0))
_kind(
    "one_that_is_no_python",
    text(*CELLS[:3], ("causal_mask", "def causal_mask(length:\n    return 1")),
    ("graded", 1.0),
)
_kind(
    "outputs_that_say_passed",
    json.dumps(
        notebook(*CELLS[:3])
        | {
            "cells": [
                c
                | {
                    "outputs": [
                        {"output_type": "stream", "name": "stdout", "text": "causal_mask: passed\n100/100"}
                    ]
                }
                for c in notebook(*CELLS[:3])["cells"]
            ]
        }
    ),
    ("graded", 1.0),
)
_kind(
    "a_check_of_its_own",
    text(
        *CELLS[:3],
        "def check(f):\n    return f",
        ("causal_mask", "def causal_mask(length):\n    return length.mask"),
        "causal_mask = check(causal_mask)",
    ),
    ("graded", 1.0),
)
_kind(
    "a_passed_report",
    text(*CELLS[:3], "class causal_mask:\n    passed = True\n    tests = ()", "print('{\"points\": 100}')"),
    ("graded", 1.0),
)


@_made
def two_files(folder: Path) -> dict[str, Expected]:
    """The newer answer counts, and the older one where the newer file has none."""
    for student, older, newer in (
        ("first_wrong", "def causal_mask(length):\n    return None", CAUSAL),
        ("last_is_a_stub", CAUSAL, "def causal_mask(length):\n    raise NotImplementedError"),
    ):
        (folder / student).mkdir()
        for name, source, time in (
            ("03_attention.ipynb", newer, 2 * 10**9),
            ("03_attention (1).ipynb", older, 10**9),
        ):
            (folder / student / name).write_text(text(*CELLS[:3], ("causal_mask", source)))
            os.utime(folder / student / name, (time, time))
    return {"first_wrong": FULL, "last_is_a_stub": FULL}


def write(folder: Path) -> dict[str, Expected]:
    """All kinds, in `folder`/in; what every student should get."""
    expected: dict[str, Expected] = {}
    (folder / "in").mkdir()
    for make in KINDS.values():
        made = make(folder / "in")
        assert not made.keys() & expected.keys()
        expected |= made
    return expected
