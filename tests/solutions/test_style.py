"""Every exercise exists with its exact signature, documented, and keeps its own "not allowed" list."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import txcourse.solutions

FOLDER = Path(txcourse.solutions.__file__).parent

SIGNATURES = {
    "start_here": ["softmax(x, dim=-1)", "Linear(d_in, d_out, bias=True)"],
    "tokens_and_embeddings": [
        "Vocabulary(sequences, min_count=1)",
        "Vocabulary.encode(self, tokens)",
        "Vocabulary.decode(self, ids, skip_special=True)",
        "pad_sequences(sequences, pad_id=0)",
        "learn_bpe(word_counts, n_merges)",
        "apply_bpe(word, merges)",
        "TokenEmbedding(vocab_size, d_model, pad_id=0)",
        "nearest_neighbours(embedding, index, k)",
    ],
    "sequence_to_sequence": [
        "rnn_cell(x, h, w_xh, w_hh, b)",
        "gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)",
        "additive_attention(state, encoder_states, w_s, w_e, v, mask=None)",
        "dot_product_attention(state, encoder_states, mask=None)",
    ],
    "attention": [
        "attention_by_loops(query, key, value)",
        "scaled_dot_product_attention(query, key, value, mask=None)",
        "padding_mask(tokens, pad_id=0)",
        "causal_mask(length)",
    ],
    "attention_gradients": [
        "numerical_gradient(f, x, eps=1e-06)",
        "softmax_backward(weights, grad_weights)",
        "attention_backward(query, key, value, grad_output)",
        "layer_norm_backward(x, grad_output, gamma, eps=1e-05)",
    ],
    "multi_head_attention": [
        "split_heads(x, n_heads)",
        "merge_heads(x)",
        "MultiHeadAttention(d_model, n_heads, dropout=0.0)",
        "MultiHeadAttention.forward(self, query, key, value, mask=None)",
    ],
    "positional_encoding": [
        "sinusoidal_positional_encoding(n_positions, d_model)",
        "PositionalEncoding(d_model, max_len=5000, dropout=0.0)",
        "LearnedPositionalEmbedding(max_len, d_model)",
        "rotary_embedding(x, positions, base=10000.0)",
    ],
    "feed_forward_and_residuals": [
        "PositionwiseFeedForward(d_model, d_ff, dropout=0.0)",
        "LayerNorm(d_model, eps=1e-05)",
        "ResidualConnection(d_model, dropout=0.0, norm_first=False)",
        "ResidualConnection.forward(self, x, sublayer)",
    ],
    "encoder": [
        "EncoderLayer(d_model, n_heads, d_ff, dropout=0.1, norm_first=False)",
        "EncoderLayer.forward(self, x, mask=None)",
        "Encoder(n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False)",
        "Encoder.forward(self, x, mask=None)",
    ],
    "decoder": [
        "DecoderLayer(d_model, n_heads, d_ff, dropout=0.1, norm_first=False)",
        "DecoderLayer.forward(self, x, memory, tgt_mask=None, memory_mask=None)",
        "Decoder(n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False)",
        "Decoder.forward(self, x, memory, tgt_mask=None, memory_mask=None)",
    ],
    "transformer": [
        "initialise(model)",
        "Transformer(src_vocab, tgt_vocab, d_model=512, n_heads=8, n_layers=6, d_ff=2048, dropout=0.1, "
        "norm_first=False, tie_embeddings=False, max_len=5000, pad_id=0)",
        "Transformer.encode(self, src)",
        "Transformer.decode(self, tgt, memory, src)",
        "Transformer.forward(self, src, tgt)",
        "count_parameters(model)",
    ],
    "batching": [
        "collate(sequences, pad_id, bos_id, eos_id)",
        "shift_target(tgt)",
        "token_batches(lengths, max_tokens, seed=None)",
    ],
    "training": [
        "label_smoothed_cross_entropy(logits, targets, smoothing, pad_id=0)",
        "noam_lr(step, d_model, warmup, factor=1.0)",
        "adam_step(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-09)",
        "clip_gradients(parameters, max_norm)",
        "train_step(model, micro_batches, optimizer, smoothing=0.1, max_norm=None)",
    ],
    "decoding": [
        "greedy_decode(model, src, max_len, bos_id, eos_id, pad_id=0)",
        "beam_search(model, src, max_len, bos_id, eos_id, beam_size, length_penalty)",
        "KeyValueCache(n_layers, batch, n_heads, max_len, d_k)",
        "KeyValueCache.append(self, layer, key, value)",
    ],
    "measuring_quality": [
        "edit_distance(a, b)",
        "error_rates(hypotheses, references)",
        "corpus_bleu(hypotheses, references)",
    ],
    "why_transformers_work": [
        "path_length(kind, length)",
        "attention_flops(length, d_model, projections=True)",
        "recurrent_flops(length, d_model, gates=1)",
    ],
    "efficient_attention": [
        "local_attention_mask(length, window)",
        "linear_attention(query, key, value, causal=False, key_mask=None)",
        "online_softmax_attention(query, key, value, block)",
        "state_space_scan(a, b, c, x)",
    ],
}

NOT_ALLOWED = {
    "start_here": {"softmax", "log_softmax", "linear"},  # as calls of a library: attributes, see below
    "tokens_and_embeddings": {"pad_sequence"},
    "sequence_to_sequence": {"RNN", "RNNCell", "GRU", "GRUCell", "gru_cell"},
    "attention": {"scaled_dot_product_attention", "MultiheadAttention"},
    "multi_head_attention": {"MultiheadAttention", "multi_head_attention_forward"},
    "feed_forward_and_residuals": {"layer_norm"},
    "efficient_attention": {"scaled_dot_product_attention", "MultiheadAttention"},
    "training": {"cross_entropy", "CrossEntropyLoss", "kl_div", "Adam", "clip_grad_norm_"},
}


@pytest.mark.parametrize(("module", "expected"), [(m, e) for m, es in SIGNATURES.items() for e in es])
def test_signature_and_docstring(module: str, expected: str) -> None:
    solutions = importlib.import_module(f"txcourse.solutions.{module}")
    name = expected.split("(")[0]
    found = solutions
    for part in name.split("."):
        found = getattr(found, part)
    parameters = inspect.signature(found).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert f"{name}{inspect.Signature(plain)}" == expected
    assert found.__module__ == solutions.__name__
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters if p.name != "self")
    assert inspect.getdoc(found)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_imports_and_forbidden_calls(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    allowed = {"torch", "numpy", "jaxtyping", "math", "random", "collections", "itertools", "typing"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            assert name.split(".")[0] in allowed or name.startswith("txcourse.solutions."), name
    forbidden = NOT_ALLOWED.get(path.stem, set()) | {
        "Transformer",
        "TransformerEncoder",
        "TransformerDecoder",
    }
    if path.stem not in ("start_here", "sequence_to_sequence", "attention"):
        forbidden |= {"LayerNorm"}
    assert not used & forbidden


def test_no_module_has_more_than_the_exercises() -> None:
    for module, signatures in SIGNATURES.items():
        tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
        defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        assert defined == {s.split("(")[0].split(".")[0] for s in signatures}
