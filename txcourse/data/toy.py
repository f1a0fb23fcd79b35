"""Toy tasks, generated from a seed: copy, reverse or sort a sequence of letters."""

import random
from collections.abc import Callable

from txcourse.data.dataset import Dataset, Pair
from txcourse.solutions.tokens_and_embeddings import Vocabulary

TOY_TASKS: dict[str, Callable[[list[str]], list[str]]] = {
    "copy": list,
    "reverse": lambda tokens: tokens[::-1],
    "sort": sorted,
}


def make_toy_task(
    task: str,
    n_train: int = 10_000,
    n_dev: int = 500,
    n_test: int = 500,
    min_length: int = 3,
    max_length: int = 10,
    symbols: str = "abcdefghijklmnop",
    seed: int = 0,
) -> Dataset:
    """Random sequences of `min_length` to `max_length` symbols; no sequence occurs twice, so none is in two splits.

    Raises ValueError for an unknown task or when there are not enough different sequences.
    """
    if task not in TOY_TASKS:
        raise ValueError(f"unknown toy task {task!r}: choose one of {', '.join(TOY_TASKS)}")
    n_total = n_train + n_dev + n_test
    if n_total > sum(len(symbols) ** length for length in range(min_length, max_length + 1)) // 2:
        raise ValueError(
            f"{n_total} different sequences are too many for {len(symbols)} symbols of this length"
        )

    generator = random.Random(seed)
    sources: dict[tuple[str, ...], None] = {}  # a dictionary keeps the order, a set would not
    while len(sources) < n_total:
        length = generator.randint(min_length, max_length)
        sources[tuple(generator.choices(symbols, k=length))] = None
    pairs: list[Pair] = [(list(source), TOY_TASKS[task](list(source))) for source in sources]

    train, measured = pairs[:n_train], [(source, [target]) for source, target in pairs[n_train:]]
    return Dataset(
        name=task,
        source=Vocabulary([source for source, _ in train]),
        target=Vocabulary([target for _, target in train]),
        train=train,
        dev=measured[:n_dev],
        test=measured[n_dev:],
        max_len=max_length,
    )
