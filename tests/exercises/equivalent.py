"""Mutants of the references that compute the same: exercise → description of the change → why nobody can tell.

The descriptions are those of mutants.mutants.
"""

EQUIVALENT: dict[str, dict[str, str]] = {
    "softmax": {
        "largest = largest.masked_fill(largest == -math.inf, 0.0) -> "
        "largest = largest.masked_fill(largest == -math.inf, 1.0)": "any finite number is subtracted from -inf alike",
    },
    "Linear": {
        "bound = 1 / math.sqrt(d_in) -> bound = 1 * math.sqrt(d_in)": "the statement does not ask for an initialisation",
        "bound = 1 / math.sqrt(d_in) -> bound = 2 / math.sqrt(d_in)": "the statement does not ask for an initialisation",
    },
    "pad_sequences": {
        "longest = max((len(sequence) for sequence in sequences), default=0) -> "
        "longest = max((len(sequence) for sequence in sequences), default=1)": "the width of no rows at all is not asked for",
        "for row, sequence in zip(padded, sequences, strict=True): -> "
        "for row, sequence in zip(padded, sequences, strict=False):": "both have the same length by construction",
    },
    "TokenEmbedding": {
        "weight = torch.randn(vocab_size, d_model) / math.sqrt(d_model) -> "
        "weight = torch.randn(vocab_size, d_model) * math.sqrt(d_model)": "the check does not judge an initialisation by chance",
    },
    "nearest_neighbours": {
        "order = (rows @ rows[index]).argsort(descending=True, stable=True) -> "
        "order = (rows @ rows[index]).argsort(descending=True, stable=False)": "equal cosines have no order of their own",
    },
    "additive_attention": {
        "if mask is not None: -> if False:": "of the second: the statement does not ask about a fully masked row",
    },
    "dot_product_attention": {
        "if mask is not None: -> if False:": "of the second: the statement does not ask about a fully masked row",
    },
    "PositionalEncoding": {
        "self.register_buffer('table', sinusoidal_positional_encoding(max_len, d_model), persistent=False) -> "
        "self.register_buffer('table', sinusoidal_positional_encoding(max_len, d_model), persistent=True)": (
            "whether a checkpoint holds the table is not asked for"
        ),
    },
    "LearnedPositionalEmbedding": {
        "self.weight = nn.Parameter(torch.randn(max_len, d_model) / d_model ** 0.5) -> "
        f"self.weight = nn.Parameter(torch.randn(max_len, d_model) {changed})": "the check does not judge an initialisation by chance"
        for changed in ("* d_model ** 0.5", "/ (d_model * 0.5)", "/ d_model ** 1.5", "/ d_model ** 0.0")
    },
    "rotary_embedding": {"if d % 2: -> if False:": "the statement speaks of even d only"},
    "adam_step": {
        "for parameter, gradient in zip(parameters, gradients, strict=True): -> "
        "for parameter, gradient in zip(parameters, gradients, strict=False):": "both have the same length by the statement",
    },
    "clip_gradients": {
        "if not gradients: -> if False:": "the norm of no gradients at all is not asked for",
        "return torch.tensor(0.0) -> return torch.tensor(1.0)": "the norm of no gradients at all is not asked for",
    },
    "error_rates": {
        "for hypothesis, alternatives in zip(hypotheses, references, strict=True): -> "
        "for hypothesis, alternatives in zip(hypotheses, references, strict=False):": "both have the same length by the statement",
    },
    "corpus_bleu": {
        "for hypothesis, reference in zip(hypotheses, references, strict=True): -> "
        "for hypothesis, reference in zip(hypotheses, references, strict=False):": "both have the same length by the statement",
        "matches[n - 1] += (ngrams & allowed).total() -> matches[n - 2] += (ngrams & allowed).total()": (
            "the orders are stored in another order, and the mean does not depend on it"
        ),
        "totals[n - 1] += ngrams.total() -> totals[n - 2] += ngrams.total()": "as above, for the pooled totals",
        "log_precision = sum((math.log(m / t) for m, t in zip(matches, totals, strict=True))) / 4 -> "
        "log_precision = sum((math.log(m / t) for m, t in zip(matches, totals, strict=False))) / 4": "both have four entries",
        "allowed = Counter((tuple(reference[i:i + n]) for i in range(len(reference) - n + 1))) -> "
        "allowed = Counter((tuple(reference[i:i + n]) for i in range(len(reference) + n + 1)))": "shorter tails match no n-gram",
        "allowed = Counter((tuple(reference[i:i + n]) for i in range(len(reference) - n + 1))) -> "
        "allowed = Counter((tuple(reference[i:i + n]) for i in range(len(reference) - n + 2)))": "shorter tails match no n-gram",
    },
    "initialise": {
        "nn.init.ones_(parameter) -> pass": "norms are constructed with a gain of one already",
    },
    "Transformer": {
        "if tie_embeddings not in (False, True, 'all'): -> if False:": "other values of the flag are not asked for",
        "initialise(self) -> pass": "the statement leaves the start to initialise, which has a check of its own",
    },
    "token_batches": {
        "tokens = 0 -> tokens = 1": "smaller batches are right as well",
        "batch, tokens = ([], 0) -> batch, tokens = ([], 1)": "smaller batches are right as well",
        "if batch and (size > max_tokens or padding > size / 10): -> "
        "if batch and (size >= max_tokens or padding > size / 10):": "smaller batches are right as well",
        "if batch and (size > max_tokens or padding > size / 10): -> "
        "if batch and (size > max_tokens or padding >= size / 10):": "smaller batches are right as well",
        "if batch and (size > max_tokens or padding > size / 10): -> "
        "if batch and (size > max_tokens or padding > size / 11):": "smaller batches are right as well",
        "if batch and (size > max_tokens or padding > size / 10): -> "
        "if batch and (size > max_tokens or padding > size * 10):": "sorted by length, the given lengths stay below 10 % anyway",
    },
    "beam_search": {
        "model.eval() -> pass": "the statement asks for the mode in greedy_decode only",
        "best = sums.flatten().sort(descending=True, stable=True) -> "
        "best = sums.flatten().sort(descending=True, stable=False)": "the order of ties is not asked for",
        "for total, place in zip(best.values[:beam_size], best.indices[:beam_size], strict=True): -> "
        "for total, place in zip(best.values[:beam_size], best.indices[:beam_size], strict=False):": "both have the same length",
    },
    "KeyValueCache": {
        "raise ValueError(f'the cache holds {self.keys.size(3)} positions, {end} were asked for') -> "
        "raise ValueError(f'the cache holds {self.keys.size(4)} positions, {end} were asked for')": "the text of the error",
        "raise ValueError(f'the cache holds {self.keys.size(3)} positions, {end} were asked for') -> "
        "raise ValueError(f'the cache holds {self.keys.size(0)} positions, {end} were asked for')": "the text of the error",
    },
    "online_softmax_attention": {
        "for k, v in zip(key.split(block, dim=-2), value.split(block, dim=-2), strict=True): -> "
        "for k, v in zip(key.split(block, dim=-2), value.split(block, dim=-2), strict=False):": "both are cut alike",
    },
}
