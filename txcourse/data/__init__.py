"""The data of the course: CMUdict pronunciations (no download), generated toy tasks, Multi30k (a download)."""

from txcourse.data.dataset import Dataset, Example, Pair
from txcourse.data.pronunciation import load_pronunciations, load_pronunciations_2007, read_cmudict, split_of
from txcourse.data.toy import TOY_TASKS, make_toy_task
from txcourse.data.translation import TranslationDataset, load_translation

__all__ = [
    "TASKS",
    "TOY_TASKS",
    "Dataset",
    "Example",
    "Pair",
    "TranslationDataset",
    "load",
    "load_pronunciations",
    "load_pronunciations_2007",
    "load_translation",
    "make_toy_task",
    "read_cmudict",
    "split_of",
]


TASKS = ("pronunciation", "pronunciation-2007", "translation", *TOY_TASKS)


def load(task: str, download: bool = False) -> Dataset:
    """The dataset of a task: "pronunciation", "pronunciation-2007", "translation", "copy", "reverse" or "sort".

    `download` allows to fetch what the course does not carry. Raises ValueError for another name, UserError when
    data are missing.
    """
    if task == "pronunciation":
        return load_pronunciations()
    if task == "pronunciation-2007":
        return load_pronunciations_2007(download)
    if task == "translation":
        return load_translation(download)
    if task in TOY_TASKS:
        return make_toy_task(task)
    raise ValueError(f"unknown task {task!r}: choose one of {', '.join(TASKS)}")
