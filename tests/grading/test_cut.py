"""What is executed for an exercise, and which answers are alike."""

import ast
import re

import pytest

from tests.grading.making import notebook, solved
from txcourse import exercises
from txcourse.grading.cut import cut, fingerprint, reference_fingerprint
from txcourse.source import code_cells

COURSE = ["early", "f", "late"]
F = "def f(x):\n    return x + 1"


def sources(*cells: str | tuple[str, str], asked: tuple[str, ...] = ("f",)) -> tuple[str, ...]:
    made = cut(code_cells(notebook(*cells)), "f", asked, COURSE)
    return made.sources if made else ()


def test_only_what_is_needed_is_executed() -> None:
    cells = (
        "import math\nimport os\nprint('x')",
        "os.remove('everything')",
        "SCALE = math.pi\nOTHER = 1",
        "def g():\n    return SCALE",
    )
    (source,) = sources(
        *cells, ("f", "def f(x):\n    return g() * x\nassert f(1) == 3"), "f = check(f)", "f(3)"
    )
    names: dict = {}
    exec(source, names)
    assert names["f"](2) == 2 * 3.141592653589793
    assert not any(word in source for word in ("os", "OTHER", "print", "assert", "check", "f(3)"))


def test_what_comes_after_the_check_changes_nothing() -> None:
    after = ("def g():\n    return 2", "f = None", "g.x = 3", "from math import *")
    assert sources("def g():\n    return 1", ("f", "def f(x):\n    return g()"), "f = check(f)", *after) == (
        "def g():\n    return 1\n\n\ndef f(x):\n    return g()\n",
    )


def test_what_stands_further_down_is_found_all_the_same() -> None:
    (source,) = sources(
        ("f", "def f(x=SIZE):\n    return g(x)"),
        "f = check(f)",
        "SIZE = 4",
        "def g(x):\n    return h(x)",
        "def h(x):\n    return x",
    )
    names: dict = {}
    exec(source, names)
    assert names["f"]() == 4


def test_names_that_come_by_a_star() -> None:
    (source,) = sources("from math import *", ("f", "def f(x):\n    return sqrt(x)"))
    assert source.startswith("from math import *\n") and sources("from math import *", ("f", F)) == (
        F + "\n",
    )


def test_a_star_in_the_answers_cell_or_behind_it() -> None:
    answer, star = "def f(x):\n    return sqrt(x)", "from math import *"
    for cells in ((("f", f"{star}\n{answer}"),), (("f", answer), star)):
        assert sources(*cells, "f = check(f)") == (f"{star}\n\n\n{answer}\n",)


def test_from_future_stays_in_front() -> None:
    (source,) = sources(
        "x = 1", ("f", "from __future__ import annotations\ndef f(a: Nothing = x):\n    return a")
    )
    assert source.startswith("from __future__ import annotations\n")
    compile(source, "", "exec")


def test_a_class_that_builds_on_an_earlier_one_of_its_name() -> None:
    (source,) = sources("class f:\n    a = 1", ("f", "class f(f):\n    b = 2"))
    assert source.count("class f") == 2
    assert sources("class f:\n    a = 1", ("f", "class f:\n    def g(self):\n        return f")) == (
        "class f:\n    def g(self):\n        return f\n",
    )


EARLY, USER = "def early(x):\n    return x", "def f(x):\n    return early(x)"


def test_earlier_exercises_are_the_references_first() -> None:
    for asked in (("f",), ("early", "f")):
        assert sources(EARLY, "early = check(early)", ("f", USER), asked=asked) == (
            USER + "\n",
            f"{EARLY}\n\n\n{USER}\n",
        )
    stub = "def early(x):\n    raise NotImplementedError"
    assert sources(stub, "early = check(early)", ("f", USER)) == (USER + "\n",)
    assert sources("from txcourse.mine import early, f", ("f", USER)) == (USER + "\n",)


def test_an_import_from_another_package_is_no_answer() -> None:
    cells = "from torch.nn import Linear as early, f", ("f", USER)
    assert sources(*cells) == ("from torch.nn import Linear as early\n\n\n" + USER + "\n",)


def test_a_later_exercise_that_is_asked_for_is_the_students() -> None:
    late, user = EARLY.replace("early", "late"), USER.replace("early", "late")
    assert sources(late, ("f", user), asked=("f", "late")) == (f"{late}\n\n\n{user}\n",)
    assert sources(late, ("f", user))[0] == user + "\n"


@pytest.mark.parametrize(
    "cells",
    [
        (),
        ("x = 1",),
        (("f", ""),),
        (("f", "# nothing yet"),),
        (("f", "%%time"),),
        (("f", 'def f(x):\n    """Doc."""\n    raise NotImplementedError'), "f = check(f)"),
        (("f", "class f:\n    def a(self):\n        raise NotImplementedError"),),
        (("f", "x = 1"),),
        ("f = check(f)",),
        ("from txcourse.mine import early, f", "early(f)"),
        (("f", "def f(x):\n    raise NotImplementedError"), "from txcourse.mine import f"),
    ],
)
def test_no_answer(cells: tuple) -> None:
    assert sources(*cells) == ()


@pytest.mark.parametrize(
    "text",
    ["def f(x:\n  return 1", "def f(x):\nreturn 1", "def f():\n    '\ud800'", "x = 1\0\ndef f(): pass"],
)
def test_an_answer_that_is_no_python_is_handed_on(text: str) -> None:
    assert sources("a = 1", ("f", text)) == sources("a = 1", text) == (text,)


def test_magic_lines_and_what_follows_a_check() -> None:
    assert sources(("f", "%%time\n%matplotlib inline\n!ls\n" + F)) == (F + "\n",)


@pytest.mark.parametrize("check", ["f = check(f)", "check(f)", "txcourse.check(f);"])
def test_an_import_from_the_course_is_no_answer(check: str) -> None:
    """Notebooks pasted one behind the other: the second one imports what the first one defines."""
    for cells in ((F, check, "from txcourse.mine import f"), (F, "from txcourse.mine import f", check)):
        assert sources(*cells) == (F + "\n",)


@pytest.mark.parametrize("check", ["f = check(f)", "check(f)"])
def test_what_comes_after_a_check_without_its_result(check: str) -> None:
    cells = "import math", ("f", "def f(x):\n    return math.exp(x)"), check, "math = None"
    assert sources(*cells) == ("import math\n\n\ndef f(x):\n    return math.exp(x)\n",)


@pytest.mark.parametrize(
    "lines",
    ["files = !ls", "a, b = %sx ls", "f?", "?f", "torch.exp??", "if 1:\n    %time f(1)\n    !ls"],
)
def test_lines_of_ipython(lines: str) -> None:
    assert sources(("f", f"{F}\n{lines}\n")) == sources(("f", f"{lines}\n{F}")) == (F + "\n",)


@pytest.mark.parametrize(
    "cells",
    [
        ("CFG = []", "CFG.append(1)", ("f", "def f(x):\n    return x + CFG[0]")),
        ("CFG = {}\nCFG.setdefault('a', []).append(1)", ("f", "def f(x):\n    return x + CFG['a'][0]")),
        (("f", "class f(int):\n    pass"), "def new(cls, x):\n    return x + 1\nsetattr(f, '__new__', new)"),
        (
            (
                "f",
                "import functools as t\n@t.singledispatch\ndef f(x):\n    pass\n@f.register\ndef _(x: int):\n    return x + 1",
            ),
        ),
    ],
)
def test_what_a_call_changes(cells: tuple) -> None:
    """Tried after the source without: the call may as well be something that breaks."""
    first, second = sources(
        "import math\nmath.sqrt(1)\nother = []\nother.append(2)", *cells, "f = check(f)", "f.late()"
    )
    names: dict = {}
    exec(second, names)
    assert names["f"](1) == 2 and len(first) < len(second) and "math" not in second and "other" not in second


def test_a_global_that_the_answer_counts() -> None:
    (source,) = sources("N = 0\nM = 1", ("f", "def f(x):\n    global N\n    N += 1\n    return x + N"))
    names: dict = {}
    exec(source, names)
    assert names["f"](1) == 2 and "M" not in source


def test_a_cell_that_is_indented_as_a_whole() -> None:
    text = "\n".join("    " + line for line in F.split("\n"))
    assert sources(("f", text)) == sources(("f", "\n\n" + text + "\n    %time f(1)")) == (F + "\n",)


@pytest.mark.parametrize("sign", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_signs_that_end_a_line_for_some(sign: str) -> None:
    """For str.splitlines, not for Python."""
    cell = f"NOTE = 'a{sign}b'\n# a{sign}b\n{F}  # a{sign}b\nprint(1)"
    (source,) = sources(("f", cell))
    names: dict = {}
    exec(source, names)
    assert names["f"](1) == 2


def test_no_reference_is_like_another_one() -> None:
    found = [reference_fingerprint(exercises.get(name), exercises.names()) for name in exercises.names()]
    long = [each for each in found if each is not None]
    assert len(set(long)) == len(long) > len(found) / 2


DISGUISED = solved("scaled_dot_product_attention")
for old, new in {
    "query": "q",
    "key": "k_",
    "scores": "s",
    "weights": "w",
    "Softmax": "Mine",
    "mask": "m",
    "value": "val",
}.items():
    DISGUISED = re.sub(rf"\b{old}\b", new, DISGUISED)


def test_answers_that_differ_in_names_alone() -> None:
    reference = reference_fingerprint(exercises.get("scaled_dot_product_attention"), exercises.names())
    assert reference is not None and fingerprint(ast.unparse(ast.parse(DISGUISED))) == reference
    assert fingerprint("# mine\n" + DISGUISED.replace(") -> ", ")  ->  ")) == reference
    assert fingerprint(DISGUISED.replace("sqrt", "exp")) != reference
    assert fingerprint("def f(x):\n    return x") is None and fingerprint("def f(") is None


def test_attributes_are_names_too() -> None:
    module = solved("MultiHeadAttention")
    other = (
        module.replace("self.w_q", "self.to_q")
        .replace("self.w_o", "self.out")
        .replace("MultiHeadAttention", "MHA")
    )
    assert fingerprint(module) == fingerprint(other) != None  # noqa: E711
