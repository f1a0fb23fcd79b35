"""What a learner calls: check, hint, reveal, progress."""

import html
import inspect
import sys
from typing import Any

from txcourse.errors import UserError
from txcourse.learner import answers, workspace
from txcourse.learner.course import CourseMap, course_map, status
from txcourse.learner.show import Shown, show

__all__ = ["check", "hint", "progress", "reveal", "status"]

kept_here: dict[str, Any] = {}  # answers that passed in this process and are stored nowhere
_shown_hints: dict[str, int] = {}
_told_where = False


def check(candidate: Any) -> Any:
    """Check an answer, show the result, and store the answer when it passed.

    Args:
        candidate: the learner's function or class; the exercise is found by its name.
    Returns:
        the candidate when it passed, else the reference, so that the cells below work either way.
    """
    from txcourse import exercises

    name = _name_of(candidate, sys._getframe(1).f_globals)
    exercise = exercises.get(name)
    if _module(candidate).startswith(
        "txcourse."
    ):  # the check ran twice, and the first time it gave the reference
        show(Shown(f"{name} is the reference at the moment. Run the cell with your answer, then this one."))
        return exercise.reference
    report = exercises.run_check(name, candidate)
    note = (
        _keep(name, exercise.notebook, candidate)
        if report.passed
        else f"The cells below use the reference for {name}."
    )
    if report.started and not report.passed:
        note = "\n".join([note, *_count_try(name)])
    text = f"{report.to_text()}\n{note}".rstrip()
    as_html = report._repr_html_() + "".join(f"<p>{html.escape(line)}</p>" for line in note.splitlines())
    show(Shown(text, as_html))
    return candidate if report.passed else exercise.reference


def _count_try(name: str) -> list[str]:
    """Note in the workspace that an answer was tried; what went wrong with that, in lines."""
    here = workspace.find()
    try:
        if here:
            here.set_record(name, tries=here.record(name)["tries"] + 1)
    except UserError as error:
        return [str(error)]
    return []


def _name_of(candidate: Any, caller: dict[str, Any]) -> str:
    from txcourse import exercises

    names = exercises.names()
    own = getattr(candidate, "__name__", None)
    if own in names:
        return own
    for name, value in caller.items():
        if value is candidate and name in names:
            return name
    raise UserError(
        f"check needs the answer to an exercise, under the exercise's name; `{own or repr(candidate)}` is none. "
        "progress() lists them."
    )


def _module(candidate: Any) -> str:
    return (candidate if hasattr(candidate, "__name__") else type(candidate)).__module__ or ""


def _keep(name: str, notebook: str, candidate: Any) -> str:
    """Store an answer that passed; what to tell the learner about it."""
    global _told_where
    from txcourse import exercises

    if _module(candidate).startswith(f"{answers.PACKAGE}."):
        return "This is your answer as it was stored."
    kept_here[name] = candidate
    here = workspace.find()
    if here is None:
        first, _told_where = not _told_where, True
        return (
            "Answers are kept for this session only, as this notebook is not in a course folder "
            "(`txcourse lab` makes one; so does setting TXCOURSE_WORKSPACE)."
            if first
            else ""
        )
    try:
        here.set_record(name, tries=here.record(name)["tries"] + 1, passed=True)
        cell, others, namespace = answers.cells_of(candidate, name)
        block = answers.block_of(name, cell, others, namespace, exercises.names())
        path = answers.store(here, notebook, name, block, exercises.names())
    except answers.NotStored as reason:
        return f"Passed, but not stored for later notebooks: {reason}, and check again."
    except UserError as error:
        return f"Passed, but not stored: {error}"
    kept_here.pop(name, None)
    return f"Stored in {path.relative_to(here.root.parent)}; later notebooks use it."


def hint(exercise: Any) -> None:
    """Show the next of an exercise's three hints: a question, a pointer, nearly the line.

    Args:
        exercise: its name, or the function or class itself.
    """
    known = _exercise(exercise)
    here = workspace.find()
    seen = here.record(known.name)["hints"] if here else _shown_hints.get(known.name, 0)
    number = min(seen, len(known.hints) - 1)
    if here:
        here.set_record(known.name, hints=number + 1)
    _shown_hints[known.name] = number + 1
    text = f"Hint {number + 1} of {len(known.hints)} for {known.name}: {known.hints[number]}"
    if number + 1 == len(known.hints):
        text += f'\nThis was the last one. reveal("{known.name}") shows the reference.'
    show(Shown(text))


def reveal(exercise: Any, sure: bool = False) -> None:
    """Show the reference beside the learner's version.

    Args:
        exercise: its name, or the function or class itself.
        sure: needed as long as the exercise is open.
    """
    known = _exercise(exercise)
    if not sure and status(known.name) != "done":
        show(
            Shown(
                f'{known.name} is still open. To see the reference all the same: reveal("{known.name}", sure=True)'
            )
        )
        return
    here = workspace.find()
    yours = answers.blocks(answers.answer_file(here, known.notebook)).get(known.name) if here else None
    if yours is None and known.name in kept_here:
        yours = "\n".join(_source(kept_here[known.name], known.name))
    sides = {"the reference": inspect.getsource(known.reference), "yours": yours or "(not passed yet)"}
    text = "\n\n".join(f"--- {known.name}: {title} ---\n{code.rstrip()}" for title, code in sides.items())
    cells = "".join(
        f'<div style="flex:1 1 30em;overflow:auto"><b>{title}</b><pre style="text-align:left">{html.escape(code)}</pre></div>'
        for title, code in sides.items()
    )
    show(Shown(text, f'<div style="display:flex;flex-wrap:wrap;gap:1em">{cells}</div>'))


def _source(candidate: Any, name: str) -> list[str]:
    try:
        return answers.cells_of(candidate, name)[0].splitlines()
    except answers.NotStored:
        return []


def progress() -> CourseMap:
    """The map of the course: each exercise done, tried or open."""
    return course_map()


def _exercise(exercise: Any) -> Any:
    from txcourse import exercises

    name = exercise if isinstance(exercise, str) else getattr(exercise, "__name__", str(exercise))
    if name not in exercises.names():
        raise UserError(f"there is no exercise `{name}`; `txcourse progress` (or progress()) lists them")
    return exercises.get(name)
