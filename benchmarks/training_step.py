"""CPU time of a training step: torch.nn.Transformer, the course's plain model and its fast form, in turns.

    python benchmarks/training_step.py [ROUNDS]

Every round runs one step of each contestant on the same batch; a ratio is the CPU time of nn.Transformer divided by
the contestant's in the same round (above 1 is faster), given as median [min max]. One thread. All have the same
dropout places: attention weights, after the ReLU, every sublayer's output, and the sum of embedding and position.

  m        V = 8000, d_model 256, 8 heads, 3 + 3 layers, d_ff 1024, post-norm, embeddings tied three ways, dropout 0.1,
           64 sequences of 20 to 40 tokens padded on the right
  default  the capstone's model on its own batches: d_model 96, 4 heads, 2 + 2 layers, d_ff 384, pre-norm, no dropout
"""

import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from txcourse import data
from txcourse.fast import FastTransformer
from txcourse.solutions.positional_encoding import PositionalEncoding
from txcourse.solutions.tokens_and_embeddings import TokenEmbedding
from txcourse.solutions.transformer import Transformer
from txcourse.training import load_config
from txcourse.training.batches import TrainingBatches


class TorchTransformer(nn.Module):
    """torch.nn.Transformer between the course's embeddings and a tied output layer, masks as its manual says."""

    def __init__(
        self, src_vocab: int, tgt_vocab: int, tie_embeddings: bool | str, **size: int | float | bool
    ) -> None:
        super().__init__()
        n_layers, norm_first = int(size["n_layers"]), bool(size["norm_first"])
        self.core = nn.Transformer(
            int(size["d_model"]),
            int(size["n_heads"]),
            n_layers,
            n_layers,
            int(size["d_ff"]),
            float(size["dropout"]),
            norm_first=norm_first,
            batch_first=True,
        )
        self.src_embedding = TokenEmbedding(src_vocab, int(size["d_model"]))
        shared = tie_embeddings == "all"
        self.tgt_embedding = self.src_embedding if shared else TokenEmbedding(tgt_vocab, int(size["d_model"]))
        self.positions = PositionalEncoding(int(size["d_model"]), 256, float(size["dropout"]))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        hidden = self.core(
            self.positions(self.src_embedding(src)),
            self.positions(self.tgt_embedding(tgt)),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(tgt.size(1)),
            src_key_padding_mask=src == 0,
            memory_key_padding_mask=src == 0,
            tgt_is_causal=True,
        )
        return F.linear(hidden, self.tgt_embedding.weight)


def logits_loss(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(src: Tensor, tgt: Tensor) -> Tensor:
        logits = model(src, tgt[:, :-1]).flatten(0, 1)
        return F.cross_entropy(logits, tgt[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1)

    return loss


def fast_loss(model: FastTransformer) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(src: Tensor, tgt: Tensor) -> Tensor:
        return model.summed_loss(src, tgt, smoothing=0.1) / (tgt[:, 1:] != 0).sum()

    return loss


def race(name: str, vocabularies: tuple[int, int], size: dict, batches: list[tuple[Tensor, Tensor]]) -> None:
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {
        "torch.nn.Transformer": TorchTransformer(*vocabularies, **size),
        "txcourse, plain": Transformer(*vocabularies, max_len=256, **size),
        "txcourse, fast": (fast := FastTransformer(*vocabularies, max_len=256, **size)),
    }
    losses = {key: logits_loss(model) for key, model in models.items()} | {"txcourse, fast": fast_loss(fast)}
    adams = {key: torch.optim.Adam(model.parameters(), lr=1e-4, fused=True) for key, model in models.items()}
    times: dict[str, list[float]] = {key: [] for key in models}
    for i, (src, tgt) in enumerate(batches):
        for key in models:
            started = time.process_time()
            losses[key](src, tgt).backward()
            adams[key].step()
            adams[key].zero_grad(set_to_none=True)
            if i >= 2:  # the first two warm up
                times[key].append(time.process_time() - started)
    first = times["torch.nn.Transformer"]
    for key, spent in times.items():
        ratios = [a / b for a, b in zip(first, spent, strict=True)]
        print(
            f"{name:8} {key:22} {1000 * statistics.median(spent):7.1f} ms   "
            f"{statistics.median(ratios):.2f} [{min(ratios):.2f} {max(ratios):.2f}]"
        )


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {rounds} rounds, one thread")

    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(rounds + 2):
        pair = torch.randint(4, 8000, (2, 64, 40), generator=generator)
        lengths = torch.randint(20, 41, (2, 64, 1), generator=generator)
        pair[torch.arange(40) >= lengths] = 0
        batches.append((pair[0], pair[1]))
    size = {"d_model": 256, "n_heads": 8, "n_layers": 3, "d_ff": 1024, "dropout": 0.1, "norm_first": False}
    race("m", (8000, 8000), {**size, "tie_embeddings": "all"}, batches)

    config, dataset = load_config("pronunciation"), data.load("pronunciation")
    stream = TrainingBatches(dataset.train, dataset.source, dataset.target, config.batch_size, seed=1)
    batches = [stream.tensors(stream.indices(i), torch.device("cpu")) for i in range(4 * rounds + 2)]
    names = (*size, "tie_embeddings")
    race(
        "default", (len(dataset.source), len(dataset.target)), {n: getattr(config, n) for n in names}, batches
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
