"""Who is measured: the course's model in its plain and its fast form, torch.nn.Transformer, Hugging Face Marian.

Size m: V = 8000, d_model 256, 8 heads, 3 + 3 layers, d_ff 1024, post-norm, sinusoidal positions, all embeddings tied,
dropout 0.1. Where each one has dropout:

  plain, fast, nn.Transformer, Marian   attention weights, after the ReLU, every sublayer's output, embedding + position
  nn.Transformer at its best            every sublayer's output, embedding + position, as in the paper

Marian comes from the package `transformers`, which the course does not need: without it those rows are left out.
"""

import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from txcourse.solutions.positional_encoding import PositionalEncoding
from txcourse.solutions.tokens_and_embeddings import TokenEmbedding

VOCABULARY = 8000
SIZE = {"d_model": 256, "n_heads": 8, "n_layers": 3, "d_ff": 1024, "dropout": 0.1, "norm_first": False}
SIZE_M = {**SIZE, "tie_embeddings": "all"}


def batch_m(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sources and targets of size m: 64 sequences each, of 20 to 40 tokens, padded on the right."""
    pair = torch.randint(4, VOCABULARY, (2, 64, 40), generator=generator)
    lengths = torch.randint(20, 41, (2, 64, 1), generator=generator)
    pair[torch.arange(40) >= lengths] = 0
    return pair[0], pair[1]


class TorchTransformer(nn.Module):
    """torch.nn.Transformer between the course's embeddings and a tied output layer, masks as its manual says.

    At its best, it has the paper's dropout only and no mask on the target's padding, so that its attention runs in
    PyTorch's fused kernel.
    """

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        tie_embeddings: bool | str,
        at_its_best: bool = False,
        **size: int | float | bool,
    ) -> None:
        super().__init__()
        d_model, n_layers, dropout = int(size["d_model"]), int(size["n_layers"]), float(size["dropout"])
        self.core = nn.Transformer(
            d_model,
            int(size["n_heads"]),
            n_layers,
            n_layers,
            int(size["d_ff"]),
            dropout,
            norm_first=bool(size["norm_first"]),
            batch_first=True,
        )
        self.src_embedding = TokenEmbedding(src_vocab, d_model)
        shared = tie_embeddings == "all"
        self.tgt_embedding = self.src_embedding if shared else TokenEmbedding(tgt_vocab, d_model)
        self.positions = PositionalEncoding(d_model, 256, dropout)
        if at_its_best:
            for module in self.core.modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.dropout = 0.0
                if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                    module.dropout.p = 0.0  # the one after the ReLU

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


class Marian(nn.Module):
    """Marian as transformers has it, with the size's settings and its default attention (PyTorch's fused kernel)."""

    def __init__(self, vocabulary: int, **size: int | float | bool) -> None:
        from transformers import MarianConfig, MarianMTModel

        super().__init__()
        each = {
            "layers": size["n_layers"],
            "attention_heads": size["n_heads"],
            "ffn_dim": size["d_ff"],
        }
        config = MarianConfig(
            vocab_size=vocabulary,
            d_model=size["d_model"],
            **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in each.items()},
            **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), size["dropout"]),
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=256,
            pad_token_id=0,
            bos_token_id=1,
            decoder_start_token_id=1,
            eos_token_id=2,
            forced_eos_token_id=None,
        )
        self.model = MarianMTModel(config)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.model(
            input_ids=src, attention_mask=(src != 0).long(), decoder_input_ids=tgt, use_cache=False
        ).logits

    @torch.no_grad()
    def greedy(self, src: Tensor, n_tokens: int) -> Tensor:
        """So many tokens, whatever they are."""
        return self.model.generate(
            input_ids=src,
            attention_mask=(src != 0).long(),
            num_beams=1,
            do_sample=False,
            min_new_tokens=n_tokens,
            max_new_tokens=n_tokens,
        )


def transformers_version() -> str | None:
    """The version of the package that holds Marian, None where it is not installed."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import transformers
    except ImportError:
        return None
    return transformers.__version__
