"""10 Transformer: embeddings, positions, encoder, decoder and output layer put together."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from txcourse.solutions.attention import causal_mask, padding_mask
from txcourse.solutions.decoder import Decoder
from txcourse.solutions.encoder import Encoder
from txcourse.solutions.positional_encoding import PositionalEncoding
from txcourse.solutions.tokens_and_embeddings import TokenEmbedding


@torch.no_grad()
def initialise(model: nn.Module) -> None:
    """Give every parameter of a model its starting value, in place.

    - Embeddings (nn.Embedding and classes whose name ends in "Embedding"): N(0, 1/d_model), the row of
      `padding_idx` or `pad_id` zero.
    - Norms (classes whose name ends in "Norm"): gain one, shift zero.
    - All else: matrices Xavier-uniform, vectors (the biases) zero.

    A parameter that several modules share is set once; the embedding's rule wins.

    Source: Glorot and Bengio (2010), equation 16; the paper does not say how it starts.
    """
    done: set[nn.Parameter] = set()
    # Embeddings first: an output layer that shares their matrix must not draw it again.
    for module in sorted(model.modules(), key=lambda m: not type(m).__name__.endswith("Embedding")):
        kind = type(module).__name__
        for name, parameter in module.named_parameters(recurse=False):
            if parameter in done:
                continue
            done.add(parameter)
            if kind.endswith("Embedding"):
                nn.init.normal_(parameter, std=parameter.size(-1) ** -0.5)
                pad_id = getattr(module, "padding_idx", getattr(module, "pad_id", None))
                if pad_id is not None:
                    parameter[pad_id] = 0.0
            elif kind.endswith("Norm") and not name.startswith(("b", "shift")):
                nn.init.ones_(parameter)
            elif parameter.dim() >= 2:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)


class Transformer(nn.Module):
    """The encoder-decoder of the paper: source ids and target ids in, logits over the next target id out.

    Parts: src_embedding, tgt_embedding, positions, encoder, decoder, output. tie_embeddings: False, nothing
    is shared; True, the output layer uses the matrix of the target embedding; "all", the source embedding,
    too. A tied output layer has no bias. ValueError when "all" and the vocabularies differ in size.

    Source: Vaswani et al. (2017), figure 1 and sections 3.1 to 3.5, 5.4; tying: Press and Wolf (2017).
    """

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        d_model: int = 512,
        n_heads: int = 8,
        n_layers: int = 6,
        d_ff: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        tie_embeddings: bool | str = False,
        max_len: int = 5000,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        if tie_embeddings not in (False, True, "all"):
            raise ValueError(f'tie_embeddings is False, True or "all", not {tie_embeddings!r}')
        if tie_embeddings == "all" and src_vocab != tgt_vocab:
            raise ValueError(
                f'tie_embeddings="all" needs equal vocabularies, got {src_vocab} and {tgt_vocab}'
            )
        self.pad_id = pad_id
        self.src_embedding = TokenEmbedding(src_vocab, d_model, pad_id)
        self.tgt_embedding = TokenEmbedding(tgt_vocab, d_model, pad_id)
        self.positions = PositionalEncoding(d_model, max_len, dropout)
        self.encoder = Encoder(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.decoder = Decoder(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.output = nn.Linear(d_model, tgt_vocab, bias=not tie_embeddings)
        if tie_embeddings:
            self.output.weight = self.tgt_embedding.weight
        if tie_embeddings == "all":
            self.src_embedding.weight = self.tgt_embedding.weight
        initialise(self)

    def encode(self, src: Int[Tensor, "b s"]) -> Float[Tensor, "b s d_model"]:
        """Source ids (B, S) → memory (B, S, d_model)."""
        return self.encoder(self.positions(self.src_embedding(src)), padding_mask(src, self.pad_id))

    def decode(
        self, tgt: Int[Tensor, "b t"], memory: Float[Tensor, "b s d_model"], src: Int[Tensor, "b s"]
    ) -> Float[Tensor, "b t vocab"]:
        """Target ids (B, T), memory (B, S, d_model), the source ids (B, S) it came from → logits (B, T, V).
        A target position sees itself and earlier ones; padding is hidden in target and source."""
        tgt_mask = padding_mask(tgt, self.pad_id) & causal_mask(tgt.size(1)).to(tgt.device)  # (B, 1, T, T)
        x = self.positions(self.tgt_embedding(tgt))  # (B, T, d_model)
        return self.output(self.decoder(x, memory, tgt_mask, padding_mask(src, self.pad_id)))

    def forward(self, src: Int[Tensor, "b s"], tgt: Int[Tensor, "b t"]) -> Float[Tensor, "b t vocab"]:
        """Source ids (B, S), target ids (B, T) → logits (B, T, V): row t is for the token after tgt[:, t]."""
        return self.decode(tgt, self.encode(src), src)


def count_parameters(model: nn.Module) -> int:
    """The number of numbers that a model learns; a tensor that several modules share counts once."""
    return sum(parameter.numel() for parameter in model.parameters())  # parameters() lists each one once
