"""Exercises of 02_sequence_to_sequence."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.exercises.attention import random_mask, unchanged
from txcourse.solutions import sequence_to_sequence as solutions


def _tensors(
    seed: int, *shapes: tuple[int, ...], scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    return tuple(scale * torch.randn(*shape, generator=g, dtype=dtype) for shape in shapes)


def _float64(c: Context, *args: Tensor) -> None:
    """Double precision goes through, and is double."""
    got, want = c.subject.call(*args), c.reference(*args)
    first = got[0] if isinstance(got, tuple | list) and got else got
    if isinstance(first, Tensor) and first.dtype != torch.float64:
        raise Wrong(
            f"For float64 inputs the result should be float64; yours is {first.dtype}.", "wrong_dtype"
        )
    c.expect(got, want, "the result in double precision", rtol=1e-6, atol=1e-6)


# -- plain recurrent cell --------------------------------------------------------------------------------------------

_RNN = (
    Mistake("no_tanh", "activation", "The tanh is missing."),
    Mistake("sigmoid", "activation", "There is a sigmoid where the tanh belongs."),
    Mistake("relu", "activation", "There is a ReLU where the tanh belongs."),
    Mistake("tanh_twice", "activation", "The tanh is applied twice."),
    Mistake("tanh_before_bias", "activation", "The bias is added after the tanh; it belongs inside."),
    Mistake("tanh_of_each_part", "activation", "The tanh is taken of the two products one by one; it is taken of their sum."),
    Mistake("tanh_of_input_only", "activation", "The tanh acts on x w_xh alone; it acts on the whole sum."),
    Mistake("tanh_of_state_only", "activation", "The tanh acts on h w_hh alone; it acts on the whole sum."),
    Mistake("relu_after_tanh", "activation", "There is a ReLU behind the tanh."),
    Mistake("softmax", "activation", "There is a softmax where the tanh belongs."),
    Mistake("bias_ignored", "bias", "The bias b is not added."),
    Mistake("bias_twice", "bias", "The bias b is added twice."),
    Mistake("bias_subtracted", "bias", "The bias b is subtracted."),
    Mistake("input_ignored", "parts", "x has no influence: x w_xh is missing."),
    Mistake("state_ignored", "parts", "h has no influence: h w_hh is missing."),
    Mistake("products_multiplied", "parts", "The two products are multiplied; they should be added."),
    Mistake("products_subtracted", "parts", "h w_hh is subtracted; it should be added."),
    Mistake("state_not_multiplied", "parts", "h is added without its matrix w_hh."),
    Mistake("w_xh_transposed", "input_matrix", "x is multiplied by the transposed w_xh; the formula is x w_xh."),
    Mistake("w_hh_transposed", "state_matrix", "h is multiplied by the transposed w_hh; the formula is h w_hh."),
    Mistake("matrices_exchanged", "matrices", "w_xh and w_hh (or x and h) are exchanged."),
    Mistake("old_state_added", "state", "The old state is added to the new one; a plain cell replaces it."),
    Mistake("mean_with_old_state", "state", "The result is the mean of old and new state; a plain cell replaces it."),
    Mistake("squeezes", "returns", "squeeze() removes every axis of size 1: for a batch of one the result is (d), it should be (1, d)."),
    Mistake("returns_two", "returns", "The state is returned twice, as PyTorch's layers do; return it once."),
)  # fmt: skip


def _rnn_variant(on: frozenset[str]) -> Callable[..., Any]:
    def rnn_cell(x: Tensor, h: Tensor, w_xh: Tensor, w_hh: Tensor, b: Tensor) -> Any:
        old = h
        if "matrices_exchanged" in on:
            w_xh, w_hh = w_hh, w_xh
        first = x @ (w_xh.T if "w_xh_transposed" in on else w_xh)
        second = h if "state_not_multiplied" in on else h @ (w_hh.T if "w_hh_transposed" in on else w_hh)
        factors = {"bias_ignored": 0, "bias_twice": 2, "bias_subtracted": -1}
        b = b * next((f for name, f in factors.items() if name in on), 1)
        if "input_ignored" in on:
            first = 0 * first
        elif "state_ignored" in on:
            second = 0 * second
        elif "products_subtracted" in on:
            second = -second
        total = first * second if "products_multiplied" in on else first + second
        activations: dict[str, Callable[[], Tensor]] = {
            "no_tanh": lambda: total + b,
            "sigmoid": lambda: (total + b).sigmoid(),
            "relu": lambda: (total + b).relu(),
            "tanh_twice": lambda: (total + b).tanh().tanh(),
            "tanh_before_bias": lambda: total.tanh() + b,
            "tanh_of_each_part": lambda: first.tanh() + second.tanh() + b,
            "tanh_of_input_only": lambda: first.tanh() + second + b,
            "tanh_of_state_only": lambda: first + second.tanh() + b,
            "relu_after_tanh": lambda: (total + b).tanh().relu(),
            "softmax": lambda: (total + b).softmax(-1),
        }
        new = next((f for name, f in activations.items() if name in on), lambda: (total + b).tanh())()
        if "old_state_added" in on:
            new = old + new
        elif "mean_with_old_state" in on:
            new = (old + new) / 2
        new = new.squeeze() if "squeezes" in on else new
        return (new, new) if "returns_two" in on else new

    return rnn_cell


def _rnn_inputs(
    seed: int, b: int = 3, d_in: int = 4, d: int = 5, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    return _tensors(seed, (b, d_in), (b, d), (d_in, d), (d, d), (d,), scale=0.6, dtype=dtype)


def _rnn_probes(seed: int) -> list[Probe]:
    return [
        Probe(_rnn_inputs(seed)),
        Probe(_rnn_inputs(seed + 1, 2, 4, 4)),
        Probe(_rnn_inputs(seed + 2, 4, 3, 6)),
        Probe(_rnn_inputs(seed + 3, 1, 3, 4)),
    ]


def _rnn_values(c: Context) -> None:
    for i, sizes in enumerate(((3, 4, 5), (1, 3, 2), (2, 4, 4))):
        c.same(*_rnn_inputs(c.seed + i, *sizes), what="the new state", axes="batch d")


def _rnn_steps(c: Context) -> None:
    """Three steps one after another: what comes out goes in again."""
    x, h, *weights = _rnn_inputs(c.seed)
    want = h
    for t in range(3):
        h, want = c.subject.call(x + t, h, *weights), c.reference(x + t, want, *weights)
    c.expect(h, want, "the state after three steps", axes="batch d")


def _rnn_gradients(c: Context) -> None:
    wrt = {"x": 0, "h": 1, "w_xh": 2, "w_hh": 3, "b": 4}
    c.same_gradients(*_rnn_inputs(c.seed, dtype=torch.float64), wrt=wrt)


def _rnn_dtype(c: Context) -> None:
    _float64(c, *_rnn_inputs(c.seed, dtype=torch.float64))


def _rnn_kept(c: Context) -> None:
    unchanged(c, *_rnn_inputs(c.seed))


# -- gated recurrent unit --------------------------------------------------------------------------------------------

_GRU = (
    Mistake("order_update_reset_new", "order", "The rows are read in the order update, reset, new; PyTorch's order is reset, update, new."),
    Mistake("order_reset_new_update", "order", "The rows are read in the order reset, new, update; PyTorch's order is reset, update, new."),
    Mistake("order_new_update_reset", "order", "The rows are read in the order new, update, reset; PyTorch's order is reset, update, new."),
    Mistake("order_update_new_reset", "order", "The rows are read in the order update, new, reset; PyTorch's order is reset, update, new."),
    Mistake("order_new_reset_update", "order", "The rows are read in the order new, reset, update; PyTorch's order is reset, update, new."),
    Mistake("rows_interleaved", "order", "The rows of the gates are taken to alternate; they stand in three blocks of d rows."),
    Mistake("reset_before_product", "reset", "The reset gate multiplies h before the recurrent product, as in the first paper: this is the other convention; here, as in PyTorch, it multiplies W_hn h + b_hn."),
    Mistake("reset_without_bias", "reset", "The reset gate multiplies W_hn h alone; it multiplies W_hn h + b_hn."),
    Mistake("reset_missing", "reset", "The reset gate is not used."),
    Mistake("reset_on_input", "reset", "The reset gate multiplies the part of x; it multiplies the recurrent part."),
    Mistake("reset_on_everything", "reset", "The reset gate multiplies the whole sum; it multiplies the recurrent part alone."),
    Mistake("reset_on_result", "reset", "The reset gate multiplies the new part behind its tanh; it multiplies the recurrent part inside."),
    Mistake("reset_inverted", "reset", "1 − r is used where r belongs."),
    Mistake("reset_on_old_state", "reset", "The reset gate multiplies the old state in the last line too."),
    Mistake("update_inverted", "update", "The roles of z and 1 − z are exchanged: this is the other convention, z n + (1 − z) h; here it is (1 − z) n + z h."),
    Mistake("update_missing", "update", "The result is the new part n alone: the update gate is not used."),
    Mistake("old_state_whole", "update", "The old state is added whole: (1 − z) n + h; it is multiplied by z."),
    Mistake("new_part_whole", "update", "The new part is added whole: n + z h; it is multiplied by 1 − z."),
    Mistake("both_times_update", "update", "Both parts are multiplied by z; the new one is multiplied by 1 − z."),
    Mistake("update_as_reset", "update", "The reset gate is used in place of the update gate in the last line."),
    Mistake("new_with_sigmoid", "new", "The new part goes through a sigmoid; it goes through a tanh."),
    Mistake("new_with_relu", "new", "The new part goes through a ReLU; it goes through a tanh."),
    Mistake("new_without_tanh", "new", "The new part lacks its tanh."),
    Mistake("gates_with_tanh", "gates", "The gates go through a tanh; they go through a sigmoid."),
    Mistake("gates_with_hardsigmoid", "gates", "The gates go through a hardsigmoid, made of straight pieces; they go through a sigmoid."),
    Mistake("gates_without_sigmoid", "gates", "The gates lack their sigmoid."),
    Mistake("gates_from_x_only", "gates", "The gates depend on x alone; they depend on h as well."),
    Mistake("gates_from_h_only", "gates", "The gates depend on h alone; they depend on x as well."),
    Mistake("reset_without_sigmoid", "gates", "The reset gate lacks its sigmoid."),
    Mistake("update_without_sigmoid", "gates", "The update gate lacks its sigmoid."),
    Mistake("b_hh_ignored", "bias", "b_hh is not added."),
    Mistake("b_ih_ignored", "bias", "b_ih is not added."),
    Mistake("no_biases", "bias", "Neither bias is added."),
    Mistake("biases_exchanged", "bias", "b_ih and b_hh are exchanged."),
    Mistake("b_hh_of_new_ignored", "bias", "b_hn is not added in the new part."),
    Mistake("b_ih_of_new_ignored", "bias", "b_in is not added in the new part."),
    Mistake("w_ih_not_transposed", "input_matrix", "x w_ih is computed; the gates are rows of w_ih, so it is x w_ihᵀ."),
    Mistake("blocks_of_w_hh_transposed", "state_matrix", "Each block of w_hh is used without the transpose: the formula is W h for a column, that is h Wᵀ for rows."),
    Mistake("squeezes", "returns", "squeeze() removes every axis of size 1: for a batch of one the result is (d), it should be (1, d)."),
    Mistake("returns_two", "returns", "The state is returned twice, as PyTorch's layers do; return it once."),
)  # fmt: skip


def _gru_parts(on: frozenset[str], y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reset, update, new."""
    if "rows_interleaved" in on:
        return y[:, 0::3], y[:, 1::3], y[:, 2::3]
    orders = {
        "order_update_reset_new": (1, 0, 2),
        "order_reset_new_update": (0, 2, 1),
        "order_new_update_reset": (2, 1, 0),
        "order_update_new_reset": (2, 0, 1),
        "order_new_reset_update": (1, 2, 0),
    }
    blocks = y.chunk(3, dim=-1)
    r, z, n = next((o for name, o in orders.items() if name in on), (0, 1, 2))
    return blocks[r], blocks[z], blocks[n]


def _gru_variant(on: frozenset[str]) -> Callable[..., Any]:
    def gru_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Any:
        d = h.shape[-1]
        if "biases_exchanged" in on:
            b_ih, b_hh = b_hh, b_ih
        if {"b_hh_ignored", "no_biases"} & on:
            b_hh = 0 * b_hh
        if {"b_ih_ignored", "no_biases"} & on:
            b_ih = 0 * b_ih
        if "w_ih_not_transposed" in on:
            w_ih = w_ih.reshape(3, d, -1).transpose(1, 2).reshape(3 * d, -1)
        if "blocks_of_w_hh_transposed" in on:
            w_hh = w_hh.reshape(3, d, d).transpose(1, 2).reshape(3 * d, d)
        x_r, x_z, x_n = _gru_parts(on, x @ w_ih.T)
        h_r, h_z, h_n = _gru_parts(on, h @ w_hh.T)
        i_r, i_z, i_n = _gru_parts(on, b_ih[None])
        j_r, j_z, j_n = _gru_parts(on, b_hh[None])
        if "b_hh_of_new_ignored" in on:
            j_n = 0 * j_n
        elif "b_ih_of_new_ignored" in on:
            i_n = 0 * i_n
        reset, update = x_r + h_r + i_r + j_r, x_z + h_z + i_z + j_z
        if "gates_from_x_only" in on:
            reset, update = x_r + i_r, x_z + i_z
        elif "gates_from_h_only" in on:
            reset, update = h_r + j_r, h_z + j_z
        if "gates_with_tanh" in on:
            reset, update = reset.tanh(), update.tanh()
        elif "gates_with_hardsigmoid" in on:
            reset, update = F.hardsigmoid(reset), F.hardsigmoid(update)
        else:
            bare = {"gates_without_sigmoid", "reset_without_sigmoid"} & on
            reset = reset if bare else reset.sigmoid()
            bare = {"gates_without_sigmoid", "update_without_sigmoid"} & on
            update = update if bare else update.sigmoid()
        if "reset_inverted" in on:
            reset = 1 - reset
        inside = x_n + i_n + reset * (h_n + j_n)
        if "reset_before_product" in on:
            inside = x_n + i_n + _gru_parts(on, _state_product(on, reset, h, w_hh))[2] + j_n
        elif "reset_without_bias" in on:
            inside = x_n + i_n + reset * h_n + j_n
        elif {"reset_missing", "reset_on_result"} & on:
            inside = x_n + i_n + h_n + j_n
        elif "reset_on_input" in on:
            inside = reset * (x_n + i_n) + h_n + j_n
        elif "reset_on_everything" in on:
            inside = reset * (x_n + i_n + h_n + j_n)
        functions: dict[str, Callable[[Tensor], Tensor]] = {
            "new_with_sigmoid": torch.sigmoid,
            "new_with_relu": torch.relu,
            "new_without_tanh": lambda t: t,
        }
        new = next((f for name, f in functions.items() if name in on), torch.tanh)(inside)
        new = reset * new if "reset_on_result" in on else new
        old = reset * h if "reset_on_old_state" in on else h
        z = reset if "update_as_reset" in on else update
        results = {
            "update_inverted": z * new + (1 - z) * old,
            "update_missing": new,
            "old_state_whole": (1 - z) * new + old,
            "new_part_whole": new + z * old,
            "both_times_update": z * new + z * old,
        }
        result = next((r for name, r in results.items() if name in on), (1 - z) * new + z * old)
        result = result.squeeze() if "squeezes" in on else result
        return (result, result) if "returns_two" in on else result

    return gru_cell


def _state_product(on: frozenset[str], reset: Tensor, h: Tensor, w_hh: Tensor) -> Tensor:
    return (reset * h) @ w_hh.T


def _gru_inputs(
    seed: int, b: int = 3, d_in: int = 4, d: int = 5, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    shapes = (b, d_in), (b, d), (3 * d, d_in), (3 * d, d), (3 * d,), (3 * d,)
    return _tensors(seed, *shapes, scale=0.8, dtype=dtype)


def _gru_probes(seed: int) -> list[Probe]:
    return [
        Probe(_gru_inputs(seed)),
        Probe(_gru_inputs(seed + 1, 2, 4, 4)),
        Probe(_gru_inputs(seed + 2, 4, 3, 6)),
        Probe(_gru_inputs(seed + 3, 1, 3, 4)),
    ]


def _gru_values(c: Context) -> None:
    for i, sizes in enumerate(((3, 4, 5), (1, 3, 2), (2, 4, 4))):
        c.same(*_gru_inputs(c.seed + i, *sizes), what="the new state", axes="batch d")


def _gru_update(c: Context) -> None:
    """With an update gate of 1 the state stays as it is."""
    x, h, w_ih, w_hh, b_ih, b_hh = _gru_inputs(c.seed)
    for bias in (b_ih, b_hh):
        bias[5:10] = 60.0
    got = c.subject.call(x, h, w_ih, w_hh, b_ih, b_hh)
    c.expect(got, h, "the state when the update gate is 1", axes="batch d")


def _gru_steps(c: Context) -> None:
    x, h, *weights = _gru_inputs(c.seed)
    want = h
    for t in range(3):
        h, want = c.subject.call(x + t, h, *weights), c.reference(x + t, want, *weights)
    c.expect(h, want, "the state after three steps", axes="batch d")


def _gru_gradients(c: Context) -> None:
    wrt = {"x": 0, "h": 1, "w_ih": 2, "w_hh": 3, "b_ih": 4, "b_hh": 5}
    c.same_gradients(*_gru_inputs(c.seed, dtype=torch.float64), wrt=wrt)


def _gru_dtype(c: Context) -> None:
    _float64(c, *_gru_inputs(c.seed, dtype=torch.float64))


def _gru_kept(c: Context) -> None:
    unchanged(c, *_gru_inputs(c.seed))


# -- attention -------------------------------------------------------------------------------------------------------

_ATTENTION = (
    Mistake("scaled", "scale", "The scores are divided by √d; here they are not scaled."),
    Mistake("scaled_by_d", "scale", "The scores are divided by d; here they are not scaled."),
    Mistake("scaled_by_length", "scale", "The scores are divided by √T; here they are not scaled."),
    Mistake("softmax_over_batch", "softmax", "The softmax runs over the batch; it goes over the positions."),
    Mistake("softmax_over_everything", "softmax", "The softmax runs over the whole batch at once; each sample has its own."),
    Mistake("no_softmax", "softmax", "The weights are the scores themselves: the softmax over the positions is missing."),
    Mistake("not_normalised", "softmax", "The weights are exp(scores) without division by their sum."),
    Mistake("sigmoid", "softmax", "The weights are sigmoids of the scores; the softmax makes them sum to 1."),
    Mistake("softmax_twice", "softmax", "The softmax is applied twice."),
    Mistake("hardmax", "softmax", "All of the weight goes to the largest score (argmax); the softmax gives every allowed position some."),
    Mistake("scores_clamped", "softmax", "The scores are cut off at a bound (clamp), where low ones become equal; subtract the largest score instead."),
    Mistake("log_softmax", "softmax", "The weights are logarithms: log_softmax in place of softmax."),
    Mistake("mask_ignored", "mask", "The result does not depend on the mask."),
    Mistake("mask_inverted", "mask", "The mask works the wrong way round: True means that a position may be attended to."),
    Mistake("mask_after_softmax", "mask", "The mask zeroes the weights after the softmax, so the others no longer sum to 1; mask the scores before it."),
    Mistake("mask_fill_near_zero", "mask", "Forbidden scores become 0 or nearly 0 (scores * mask, or a fill such as -1e-9), and exp(0) = 1 still gives them weight; they need a very negative number."),
    Mistake("mask_added", "mask", "The mask is added to the scores as 0 and 1; forbidden scores need a very negative value instead."),
    Mistake("mask_fill_positive", "mask", "Forbidden scores get a large positive number: they take all the weight."),
    Mistake("mask_fill_too_weak", "mask", "Forbidden scores get a number that is not negative enough (such as -1e4): real scores reach it."),
    Mistake("mask_on_states", "mask", "The mask does not touch the scores: it zeroes the forbidden states, which still take their weight."),
    Mistake("mask_on_context_only", "mask", "The context is right, but the weights that are returned are those before the mask."),
    Mistake("mask_of_first_sample", "mask", "The mask of sample 0 is used for the whole batch."),
    Mistake("context_is_mean", "context", "The context is the mean of the states: the weights are not used in it."),
    Mistake("context_not_summed", "context", "The weighted states are not added up over the positions."),
    Mistake("context_is_largest", "context", "The context is the state with the largest weight; it is the weighted sum of all."),
    Mistake("context_weighted_mean", "context", "The weighted states are averaged over the positions; they should be added up."),
    Mistake("state_added", "context", "The state is added to the context."),
    Mistake("state_appended", "context", "The state is put beside the context; return the context alone."),
    Mistake("returns_swapped", "returns", "The results are exchanged: first the context, then the weights."),
    Mistake("returns_context_only", "returns", "Only the context is returned; return (context, weights)."),
    Mistake("returns_scores", "returns", "The second result should be the weights after the softmax; yours are the scores."),
    Mistake("context_with_axis", "shape", "The context has an axis of size 1 too many: its shape is (B, d)."),
    Mistake("weights_with_axis", "shape", "The weights have an axis of size 1 too many: their shape is (B, T)."),
    Mistake("weights_transposed", "shape", "The weights are (T, B); they should be (B, T)."),
    Mistake("both_with_axis", "shape", "Context and weights have an axis of size 1 too many: their shapes are (B, d) and (B, T)."),
)  # fmt: skip


def _attend(on: frozenset[str], scores: Tensor, state: Tensor, states: Tensor, mask: Tensor | None) -> Any:
    """Softmax, mask and sum, with the mistakes in `on`."""
    divisors = {
        "scaled": math.sqrt(state.shape[-1]),
        "scaled_by_d": state.shape[-1],
        "scaled_by_length": math.sqrt(states.shape[1]),
    }
    scores = scores / next((d for name, d in divisors.items() if name in on), 1.0)
    if "scores_clamped" in on:
        scores = scores.clamp(-50, 50)
    given = mask
    if mask is not None and "mask_inverted" in on:
        mask = ~mask
    elif mask is not None and "mask_of_first_sample" in on:
        mask = mask[:1].expand_as(mask)
    unmasked = _weights(on, scores)
    fills = {"mask_fill_positive": 1e9, "mask_fill_too_weak": -1e4, "mask_fill_near_zero": 0.0}
    if mask is not None and not {"mask_ignored", "mask_after_softmax", "mask_on_states"} & on:
        if "mask_added" in on:
            scores = scores + mask
        else:
            scores = scores.masked_fill(~mask, next((f for name, f in fills.items() if name in on), -1e9))
    weights = _weights(on, scores)
    if given is not None and "mask_after_softmax" in on:
        weights = weights * given
    if mask is not None and "zeroed_after" in on:
        weights = weights * mask
    if given is not None and "mask_on_states" in on:
        states = states * given[..., None]
    contexts: dict[str, Callable[[], Tensor]] = {
        "context_is_mean": lambda: states.mean(1),
        "context_not_summed": lambda: weights[..., None] * states,
        "context_is_largest": lambda: states[torch.arange(len(states)), weights.argmax(-1)],
        "context_weighted_mean": lambda: (weights[..., None] * states).mean(1),
        "state_added": lambda: (weights[..., None] * states).sum(1) + state,
        "state_appended": lambda: torch.cat(((weights[..., None] * states).sum(1), state), dim=-1),
    }
    context = next(
        (f for name, f in contexts.items() if name in on), lambda: (weights[..., None] * states).sum(1)
    )()
    if "mask_on_context_only" in on:
        weights = unmasked
    if "weights_transposed" in on:
        weights = weights.T
    if {"weights_with_axis", "both_with_axis"} & on:
        weights = weights[:, None]
    if {"context_with_axis", "both_with_axis"} & on:
        context = context[:, None]
    if "returns_swapped" in on:
        return weights, context
    if "returns_context_only" in on:
        return context
    return context, scores if "returns_scores" in on else weights


def _weights(on: frozenset[str], scores: Tensor) -> Tensor:
    if "softmax_over_batch" in on:
        return scores.softmax(0)
    if "softmax_over_everything" in on:
        return scores.flatten().softmax(0).view_as(scores)
    if "no_softmax" in on:
        return scores
    if "not_normalised" in on:
        return scores.exp()
    if "sigmoid" in on:
        return scores.sigmoid()
    if "hardmax" in on:
        return F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores)
    if "log_softmax" in on:
        return scores.log_softmax(-1)
    return scores.softmax(-1).softmax(-1) if "softmax_twice" in on else scores.softmax(-1)


_ADDITIVE = (
    Mistake("no_tanh", "score", "The tanh is missing: the score is linear, and the state then has no influence on the weights."),
    Mistake("relu", "score", "There is a ReLU where the tanh belongs."),
    Mistake("sigmoid_inside", "score", "There is a sigmoid where the tanh belongs."),
    Mistake("tanh_of_score", "score", "The tanh is taken of the score, behind v; it is taken before the product with v."),
    Mistake("v_inside_tanh", "score", "v is multiplied inside the tanh; it weights the hidden units behind it."),
    Mistake("parts_multiplied", "score", "The two parts are multiplied; they should be added."),
    Mistake("parts_subtracted", "score", "The part of the encoder states is subtracted; it should be added."),
    Mistake("state_ignored", "score", "The state has no influence on the weights: it is missing in the scores, or the tanh is taken of the two parts one by one, and what all positions share drops out of the softmax."),
    Mistake("states_ignored", "score", "The encoder states have no influence on the weights."),
    Mistake("v_ignored", "v", "v is not used: the hidden units are added up with equal weight."),
    Mistake("hidden_mean", "v", "The mean over the hidden units is taken; it is their sum, weighted by v."),
    Mistake("matrices_exchanged", "matrices", "w_s and w_e are exchanged: w_s belongs to the state, w_e to the encoder states."),
    Mistake("one_matrix", "matrices", "w_s is used for both the state and the encoder states; w_e belongs to these."),
    Mistake("one_matrix_w_e", "matrices", "w_e is used for both the state and the encoder states; w_s belongs to the state."),
    Mistake("context_of_projected", "values", "The context is a sum of the projected encoder states; it is one of the states themselves."),
    Mistake("context_of_hidden", "values", "The context is a sum of the hidden units; it is one of the encoder states."),
)  # fmt: skip


def _additive_variant(on: frozenset[str]) -> Callable[..., Any]:
    def additive_attention(
        state: Tensor, encoder_states: Tensor, w_s: Tensor, w_e: Tensor, v: Tensor, mask: Tensor | None = None
    ) -> Any:
        if "matrices_exchanged" in on:
            w_s, w_e = w_e, w_s
        elif "one_matrix" in on:
            w_e = w_s
        elif "one_matrix_w_e" in on:
            w_s = w_e
        first, second = (state @ w_s)[:, None], encoder_states @ w_e  # (B, 1, a), (B, T, a)
        if "state_ignored" in on:
            first = 0 * first
        elif "states_ignored" in on:
            second = 0 * second
        elif "parts_subtracted" in on:
            second = -second
        total = first * second if "parts_multiplied" in on else first + second
        if {"no_tanh", "tanh_of_score"} & on:
            hidden = total
        else:
            hidden = (
                total.relu() if "relu" in on else total.sigmoid() if "sigmoid_inside" in on else total.tanh()
            )
        scores = (
            hidden.sum(-1) if "v_ignored" in on else hidden.mean(-1) if "hidden_mean" in on else hidden @ v
        )
        if "v_inside_tanh" in on:
            scores = (total * v).tanh().sum(-1)
        scores = scores.tanh() if "tanh_of_score" in on else scores
        states = (
            second
            if "context_of_projected" in on
            else hidden
            if "context_of_hidden" in on
            else encoder_states
        )
        return _attend(on, scores, state, states, mask)

    return additive_attention


_DOT = (
    Mistake("product_without_sum", "score", "The products of state and encoder state are not added up over the features."),
    Mistake("cosine", "score", "The scores are cosines: the dot products are divided by both lengths."),
    Mistake("distance", "score", "The scores are distances; they are dot products."),
    Mistake("score_negated", "score", "The scores have the wrong sign."),
    Mistake("states_with_themselves", "score", "The scores are the products of the encoder states with themselves; the state has no influence."),
    Mistake("states_reshaped", "score", "The encoder states are reshaped where a transpose is meant: the shape fits, the numbers are shuffled."),
    Mistake("other_sample", "score", "State and encoder states of different samples are multiplied: the batch is in the wrong order."),
    Mistake("tanh_of_score", "score", "A tanh is taken of the scores; they are the dot products themselves."),
)  # fmt: skip


def _dot_variant(on: frozenset[str]) -> Callable[..., Any]:
    def dot_product_attention(state: Tensor, encoder_states: Tensor, mask: Tensor | None = None) -> Any:
        scores = (encoder_states @ state[..., None])[..., 0]  # (B, T)
        if "product_without_sum" in on:
            scores = encoder_states[..., 0] * state[:, :1]
        elif "cosine" in on:
            scores = scores / (encoder_states.norm(dim=-1) * state.norm(dim=-1, keepdim=True))
        elif "distance" in on:
            scores = (encoder_states - state[:, None]).norm(dim=-1)
        elif "score_negated" in on:
            scores = -scores
        elif "states_with_themselves" in on:
            scores = (encoder_states**2).sum(-1)
        elif "states_reshaped" in on:
            b, t, d = encoder_states.shape
            scores = (state[:, None] @ encoder_states.reshape(b, d, t))[:, 0]
        elif "other_sample" in on:
            scores = (encoder_states @ state.flip(0)[..., None])[..., 0]
        elif "tanh_of_score" in on:
            scores = scores.tanh()
        return _attend(on, scores, state, encoder_states, mask)

    return dot_product_attention


Inputs = Callable[..., tuple[Tensor, ...]]


def _dot_inputs(
    seed: int, b: int = 3, t: int = 5, d: int = 4, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    return _tensors(seed, (b, d), (b, t, d), dtype=dtype)


def _additive_inputs(
    seed: int, b: int = 3, t: int = 5, d: int = 4, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    """The hidden units are neither saturated nor nearly linear, and v separates the positions."""
    state, states, w_s, w_e, v = _tensors(seed, (b, d), (b, t, d), (d, 6), (d, 6), (6,), dtype=dtype)
    return state, states, 0.7 * w_s, 0.7 * w_e, 1.5 * v


def _dot_low(seed: int) -> tuple[Tensor, ...]:
    """All scores near -20,000, so that a forbidden score of -10,000 would win."""
    state, states = _dot_inputs(seed, dtype=torch.float64)
    state = state / 2
    state[:, 0], states[..., 0] = 100.0, -200.0
    return state, states


def _additive_low(seed: int) -> tuple[Tensor, ...]:
    state, states, w_s, w_e, v = _additive_inputs(seed, dtype=torch.float64)
    state[:, 0], states[..., 0], v = 2.0, 2.0, v / 2
    w_s[:, 0], w_e[:, 0], v[0] = 0.0, 0.0, -20000.0
    w_s[0, 0] = w_e[0, 0] = 10.0  # hidden unit 0 is tanh(40) = 1 everywhere
    return state, states, w_s, w_e, v


def _mask(seed: int, b: int, t: int) -> Tensor:
    """About half of the positions, but of each sample at least one and not all, and each position in some sample."""
    mask = torch.rand(b, t, generator=torch.Generator().manual_seed(seed)) < 0.5
    for j in range(t):
        mask[j % b, j] = True
    for i in range(b):
        mask[i, i + 1] = False
    return mask


def _attention_probes(
    inputs: Inputs, low: Callable[[int], tuple[Tensor, ...]]
) -> Callable[[int], list[Probe]]:
    return lambda seed: [
        Probe(inputs(seed)),
        Probe((*inputs(seed + 1, 2, 7, 4), _mask(seed, 2, 7))),
        Probe((*inputs(seed + 2), _mask(seed + 2, 3, 5))),
        Probe((*low(seed + 3), _mask(seed + 3, 3, 5))),
    ]


def _attention_same(c: Context, *args: Tensor, what: str = "") -> None:
    got, want = c.subject.call(*args), c.reference(*args)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Wrong("Return two things: (context, weights).", "returns_not_two")
    c.expect(got[0], want[0], f"the context{what}", axes="batch d", rtol=1e-5, atol=1e-5)
    c.expect(got[1], want[1], f"the weights{what}", axes="batch position", rtol=1e-5, atol=1e-5)


def _attention_tests(
    inputs: Inputs, low: Callable[[int], tuple[Tensor, ...]], wrt: dict[str, int], formula: str
) -> tuple[Test, ...]:
    def mild(*sizes: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
        """Scores so near to each other that weights * mask / (their sum + 1e-9) is right, too."""
        state, states, *weights = inputs(*sizes, dtype=dtype)
        if weights:
            return state, states, *weights[:-1], weights[-1] / 2
        return state / 2, states

    def values(c: Context) -> None:
        _attention_same(c, *inputs(c.seed))
        _attention_same(c, *inputs(c.seed + 1, 2, 7, 4))
        _attention_same(c, *inputs(c.seed + 2, 4, 4, 4))

    def small(c: Context) -> None:
        for b, t in ((1, 5), (3, 1), (1, 1)):
            args = inputs(c.seed, b, t)
            got, want = c.subject.call(*args), c.reference(*args)
            if isinstance(got, tuple | list) and len(got) == 2 and all(isinstance(g, Tensor) for g in got):
                pairs = list(zip(got, want, strict=True))
                squeezed = all(
                    g.shape in (w.shape, w.squeeze().shape) and torch.allclose(g.view_as(w), w, atol=1e-5)
                    for g, w in pairs
                )
                if squeezed and any(g.shape != w.shape for g, w in pairs):
                    shapes = " and ".join(str(tuple(w.shape)) for w in want)
                    raise Wrong(
                        f"For B = {b}, T = {t} the shapes should be {shapes}: squeeze() removes every axis of size 1, name the one.",
                        "squeezes_axes_of_size_1",
                    )
            _attention_same(c, *args, what=f" for B = {b}, T = {t}")

    def mask(c: Context) -> None:
        for i, (b, t) in enumerate(((3, 5), (2, 7), (1, 6))):
            _attention_same(c, *mild(c.seed + i, b, t), random_mask(c.seed + i, b, t), what=" with a mask")
        _attention_same(
            c, *inputs(c.seed), torch.ones(3, 5, dtype=torch.bool), what=" with a mask that allows everything"
        )
        named = c.subject.call(*mild(c.seed), mask=random_mask(c.seed, 3, 5))
        c.expect(
            named,
            c.reference(*mild(c.seed), random_mask(c.seed, 3, 5)),
            "the result with mask=…",
            rtol=1e-5,
            atol=1e-5,
        )

    def forbidden(c: Context) -> None:
        state, states, *weights = mild(c.seed)
        hidden = random_mask(c.seed, 3, 5)
        other = states + (~hidden)[..., None] * c.randn(3, 5, 4)
        first, second = (c.subject.call(state, s, *weights, hidden) for s in (states, other))
        if not torch.allclose(first[0], second[0], atol=1e-5) or not torch.allclose(
            first[1], second[1], atol=1e-5
        ):
            raise Wrong(
                "Changing an encoder state that the mask forbids should change nothing; in yours it does."
            )

    def low_scores(c: Context) -> None:
        _attention_same(c, *low(c.seed), random_mask(c.seed, 3, 5), what=" when all scores are near -20000")

    def stable(c: Context) -> None:
        state, states, *weights = inputs(c.seed, dtype=torch.float64)
        if weights:
            weights[-1] = 2000 * weights[-1]
        else:
            state = 2000 * state
        got = c.subject.call(state, states, *weights)
        if isinstance(got, tuple | list) and any(isinstance(g, Tensor) and g.isnan().any() for g in got):
            raise Wrong(
                "For large scores the weights should stay finite; yours hold NaN: exp overflows, or is 0 everywhere.",
                "softmax_overflows",
            )
        _attention_same(c, state, states, *weights, what=" for large scores")

    def gradients(c: Context) -> None:
        args = mild(c.seed, dtype=torch.float64)
        for output in (0, 1):
            c.same_gradients(*args, random_mask(c.seed, 3, 5), wrt=wrt, output=output, rtol=1e-5, atol=1e-5)

    def dtype(c: Context) -> None:
        _float64(c, *mild(c.seed, dtype=torch.float64), random_mask(c.seed, 3, 5))

    def inputs_kept(c: Context) -> None:
        unchanged(c, *inputs(c.seed), random_mask(c.seed, 3, 5))
        state, states, *weights = inputs(c.seed)
        turned = states.transpose(0, 1).contiguous().transpose(0, 1)
        _attention_same(c, state, turned, *weights, what=" for encoder states that are not contiguous")

    return (
        Test("values", f"equals {formula} without a mask", values),
        Test("small", "takes a batch of one and a sequence of one", small, crash="crashes_with_size_1"),
        Test("mask", "gives forbidden positions no weight", mask, crash="mask_not_broadcast"),
        Test("forbidden", "does not see forbidden positions", forbidden),
        Test("low_scores", "gives forbidden positions no weight when scores are very low", low_scores),
        Test("stable", "stays finite for large scores", stable),
        Test(
            "inputs_kept",
            "leaves its inputs as they were, contiguous or not",
            inputs_kept,
            crash="needs_contiguous_input",
        ),
        Test("gradients", "has the right gradients", gradients),
        Test("dtype", "works in double precision", dtype, crash="fixed_dtype"),
    )


_exercise = partial(Exercise, notebook="02_sequence_to_sequence")

EXERCISES = (
    _exercise(
        name="rnn_cell",
        points=1,
        difficulty=1,
        minutes=5,
        hints=(
            "What are the shapes of x w_xh and of h w_hh, and which axis is the batch?",
            "Two matrix products and a bias, added up, then one tanh around everything.",
            "return torch.tanh(x @ w_xh + h @ w_hh + b)",
        ),
        reference=solutions.rnn_cell,
        tests=(
            Test("values", "equals tanh(x w_xh + h w_hh + b)", _rnn_values),
            Test("steps", "can be used step after step", _rnn_steps),
            Test("inputs_kept", "leaves its inputs as they were", _rnn_kept),
            Test("gradients", "has the right gradients", _rnn_gradients),
            Test("dtype", "works in double precision", _rnn_dtype, crash="fixed_dtype"),
        ),
        mistakes=_RNN,
        variant=_rnn_variant,
        probes=_rnn_probes,
        not_allowed=("nn.RNN",),
    ),
    _exercise(
        name="gru_cell",
        points=3,
        difficulty=2,
        minutes=15,
        hints=(
            "Which of the three parts uses the reset gate, and which line uses the update gate?",
            "Compute x @ w_ih.T + b_ih and h @ w_hh.T + b_hh once, (B, 3d) each, and cut both into three: reset, update, new.",
            "new = tanh(x_new + reset * h_new); return (1 - update) * new + update * h",
        ),
        reference=solutions.gru_cell,
        tests=(
            Test("values", "equals PyTorch's formula", _gru_values),
            Test("update", "keeps the state where the update gate is 1", _gru_update),
            Test("steps", "can be used step after step", _gru_steps),
            Test("inputs_kept", "leaves its inputs as they were", _gru_kept),
            Test("gradients", "has the right gradients", _gru_gradients),
            Test("dtype", "works in double precision", _gru_dtype, crash="fixed_dtype"),
        ),
        mistakes=_GRU,
        variant=_gru_variant,
        probes=_gru_probes,
        not_allowed=("nn.GRU",),
    ),
    _exercise(
        name="additive_attention",
        points=3,
        difficulty=2,
        minutes=15,
        hints=(
            "What has to happen to state w_s, of shape (B, a), before it can be added to encoder_states w_e, of shape (B, T, a)?",
            "One score for each position: tanh of the sum, times v. Give forbidden scores a very negative value, then a softmax over the positions.",
            "scores = ((state @ w_s)[:, None] + encoder_states @ w_e).tanh() @ v; context = (weights[:, None] @ encoder_states)[:, 0]",
        ),
        reference=solutions.additive_attention,
        tests=_attention_tests(
            _additive_inputs,
            _additive_low,
            {"state": 0, "encoder_states": 1, "w_s": 2, "w_e": 3, "v": 4},
            "the softmax of v · tanh(state w_s + encoder_state w_e)",
        ),
        mistakes=(*_ADDITIVE, *_ATTENTION),
        variant=_additive_variant,
        neutral=("zeroed_after",),  # weights * mask behind the softmax, besides
        probes=_attention_probes(_additive_inputs, _additive_low),
    ),
    _exercise(
        name="dot_product_attention",
        points=2,
        difficulty=1,
        minutes=10,
        hints=(
            "How many scores does one state give for T encoder states?",
            "The score of position t is the sum over the features of state · encoder_state; the softmax runs over t.",
            "scores = (encoder_states @ state[:, :, None])[:, :, 0]; context = (weights[:, None] @ encoder_states)[:, 0]",
        ),
        reference=solutions.dot_product_attention,
        tests=_attention_tests(
            _dot_inputs, _dot_low, {"state": 0, "encoder_states": 1}, "the softmax of state · encoder_state"
        ),
        mistakes=(*_DOT, *_ATTENTION),
        variant=_dot_variant,
        neutral=("zeroed_after",),
        probes=_attention_probes(_dot_inputs, _dot_low),
    ),
)  # fmt: skip
