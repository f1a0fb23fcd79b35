"""The order of the data: which examples make up which update. A function of the seed, so there is nothing to save."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from txcourse.data import Pair
from txcourse.solutions.batching import collate
from txcourse.solutions.tokens_and_embeddings import Vocabulary


class TrainingBatches:
    """All training pairs as two padded tensors, cut into batches of examples of like length, anew in each epoch."""

    def __init__(
        self, pairs: list[Pair], source: Vocabulary, target: Vocabulary, batch_size: int, seed: int
    ) -> None:
        self.src = _encode([src for src, _ in pairs], source)  # (n, longest source)
        self.tgt = _encode([tgt for _, tgt in pairs], target)  # (n, longest target)
        self.src_lengths = (self.src != 0).sum(1).numpy()
        self.tgt_lengths = (self.tgt != 0).sum(1).numpy()
        self.seed = seed
        self.per_epoch = -(-len(pairs) // batch_size)
        self.smallest = len(pairs) // self.per_epoch  # batches differ by one example at most: none is tiny
        self._epoch, self._batches = -1, [np.empty(0, dtype=np.int64)]

    def indices(self, step: int) -> np.ndarray:
        """The examples of the update number `step` (from 0)."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            random = np.random.default_rng((self.seed, epoch))
            shuffled = random.permutation(len(self.src))
            by_length = shuffled[np.argsort(self.src_lengths[shuffled], kind="stable")]
            batches = np.array_split(by_length, self.per_epoch)
            self._epoch, self._batches = epoch, [batches[i] for i in random.permutation(self.per_epoch)]
        return self._batches[place]

    def n_targets(self, indices: np.ndarray) -> int:
        """How many labels the examples have: every token of the target but the first, which is only given."""
        return int(self.tgt_lengths[indices].sum()) - len(indices)

    def n_tokens(self, indices: np.ndarray) -> int:
        """All tokens of the examples, of sources and targets, without padding."""
        return int(self.src_lengths[indices].sum() + self.tgt_lengths[indices].sum())

    def tensors(
        self, indices: np.ndarray, device: torch.device
    ) -> tuple[Int[Tensor, "batch source"], Int[Tensor, "batch target"]]:
        """The examples themselves, without the columns that would be padding in all of them."""
        src = self.src[indices, : self.src_lengths[indices].max()]
        tgt = self.tgt[indices, : self.tgt_lengths[indices].max()]
        return src.to(device), tgt.to(device)


def _encode(sequences: list[list[str]], vocabulary: Vocabulary) -> Int[Tensor, "batch longest"]:
    return collate([vocabulary.encode(tokens) for tokens in sequences], pad_id=0, bos_id=1, eos_id=2)
