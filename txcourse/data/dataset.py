"""What every task looks like to the training: pairs to learn from, examples with references to be measured on."""

from dataclasses import dataclass

from txcourse.solutions.tokens_and_embeddings import Vocabulary

Pair = tuple[list[str], list[str]]  # source tokens, target tokens
Example = tuple[list[str], list[list[str]]]  # source tokens, every right answer


@dataclass(frozen=True)
class Dataset:
    """A sequence-to-sequence task. The vocabularies are built on `train` alone."""

    name: str
    source: Vocabulary
    target: Vocabulary
    train: list[Pair]
    dev: list[Example]
    test: list[Example]
    max_len: int  # longest source or target of all splits, in tokens
