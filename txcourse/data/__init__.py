"""The data of the course: CMUdict pronunciations (real, no download) and generated toy tasks."""

from txcourse.data.dataset import Dataset, Example, Pair
from txcourse.data.pronunciation import load_pronunciations, read_cmudict, split_of
from txcourse.data.toy import TOY_TASKS, make_toy_task

__all__ = [
    "TOY_TASKS",
    "Dataset",
    "Example",
    "Pair",
    "load",
    "load_pronunciations",
    "make_toy_task",
    "read_cmudict",
    "split_of",
]


def load(task: str) -> Dataset:
    """The dataset of a task: "pronunciation", or one of the toy tasks "copy", "reverse", "sort".

    Raises ValueError for another name.
    """
    if task == "pronunciation":
        return load_pronunciations()
    if task in TOY_TASKS:
        return make_toy_task(task)
    raise ValueError(f"unknown task {task!r}: choose one of pronunciation, {', '.join(TOY_TASKS)}")
