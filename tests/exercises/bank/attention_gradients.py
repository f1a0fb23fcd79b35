"""Answers to the exercises of 04, right and wrong."""

import itertools
import math

import numpy as np
import torch

# -- numerical_gradient ----------------------------------------------------------------------------------------------


def numerical_basis(f, x, eps=1e-6):
    out = np.empty(x.shape)
    for i in np.ndindex(*x.shape):
        e = np.zeros(x.shape)
        e[i] = eps
        out[i] = (f(x + e) - f(x - e)) / (2 * eps)
    return out


def numerical_flat(f, x, eps=1e-6):
    flat = x.flatten()
    grad = []
    for i in range(flat.size):
        up, down = flat.copy(), flat.copy()
        up[i] += eps
        down[i] -= eps
        grad.append((f(up.reshape(x.shape)) - f(down.reshape(x.shape))) / (2 * eps))
    return np.array(grad).reshape(x.shape)


def numerical_nditer(f, x, eps=1e-6):
    grad = np.zeros_like(x)
    it = np.nditer(x, flags=["multi_index"], op_flags=["readwrite"])
    while not it.finished:
        i = it.multi_index
        old = x[i]
        x[i] = old + eps
        a = f(x)
        x[i] = old - eps
        b = f(x)
        x[i] = old
        grad[i] = 0.5 * (a - b) / eps
        it.iternext()
    return grad


class NumericalObject:
    def __call__(self, f, x, eps=1e-6, progress=None):
        shifts = np.eye(x.size).reshape(x.size, *x.shape) * eps
        values = [f(x + s) - f(x - s) for s in shifts]
        return torch.tensor(values, dtype=torch.float64).div(2 * eps).reshape(x.shape).numpy()


def numerical_steps_back(f, x, eps=1e-6):
    """Moves by adding and subtracting, so that x may differ in its last bit afterwards."""
    grad = np.zeros_like(x)
    for i in itertools.product(*map(range, x.shape)):
        x[i] += eps
        above = f(x)
        x[i] -= 2 * eps
        below = f(x)
        x[i] += eps
        grad[i] = (above - below) / (eps + eps)
    return grad


def numerical_in_flat_view(f, x, eps=1e-6):
    """Moves entries of a flat view of x, which is one where x is no view itself."""
    flat, grad = x.reshape(-1), np.zeros(x.size)
    for i in range(x.size):
        old = flat[i]
        flat[i] = old + eps
        grad[i] = f(x)
        flat[i] = old - eps
        grad[i] -= f(x)
        flat[i] = old
    return (grad / (2 * eps)).reshape(x.shape)


def numerical_forward(f, x, eps=1e-6):
    base = f(x)
    out = np.empty(x.shape)
    for i in np.ndindex(*x.shape):
        y = x.copy()
        y[i] += eps
        out[i] = (f(y) - base) / eps
    return out


def numerical_not_halved(f, x, eps=1e-6):
    return 2 * numerical_basis(f, x, eps)


def numerical_fixed(f, x, eps=1e-6):
    return numerical_basis(f, x, 1e-6)


def numerical_default(f, x, eps=1e-3):
    return numerical_basis(f, x, eps)


def numerical_flat_result(f, x, eps=1e-6):
    return numerical_basis(f, x, eps).ravel()


def numerical_leaves(f, x, eps=1e-6):
    out = np.empty(x.shape)
    for i in np.ndindex(*x.shape):
        x[i] += eps
        above = f(x)
        x[i] -= 2 * eps
        out[i] = (above - f(x)) / (2 * eps)
    return out


def numerical_leaves_at_end(f, x, eps=1e-6):
    out = numerical_basis(f, x, eps)
    x += eps
    return out


def numerical_all(f, x, eps=1e-6):
    return np.full(x.shape, (f(x + eps) - f(x - eps)) / (2 * eps))


def numerical_sign(f, x, eps=1e-6):
    return -numerical_basis(f, x, eps)


def numerical_rows(f, x, eps=1e-6):
    out = np.zeros_like(x)
    for i in range(len(x)):
        y, z = x.copy(), x.copy()
        y[i] += eps
        z[i] -= eps
        out[i] = (f(y) - f(z)) / (2 * eps)
    return out


def numerical_precedence(f, x, eps=1e-6):
    out = np.empty(x.shape)
    for i in np.ndindex(*x.shape):
        e = np.zeros(x.shape)
        e[i] = eps
        out[i] = (f(x + e) - f(x - e)) / 2 * eps
    return out


def numerical_two_axes(f, x, eps=1e-6):
    out = np.zeros(x.shape)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            e = np.zeros(x.shape)
            e[i, j] = eps
            out[i, j] = (f(x + e) - f(x - e)) / (2 * eps)
    return out


def numerical_returns_early(f, x, eps=1e-6):
    out = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = eps
        out[i] = (f(x + e) - f(x - e)) / (2 * eps)
        return out


def numerical_alias(f, x, eps=1e-6):
    x = np.array(x, float)
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        plus, minus = x, x
        plus[i] += eps
        minus[i] -= eps
        out[i] = (f(plus) - f(minus)) / (2 * eps)
    return out


def numerical_copies_outside(f, x, eps=1e-6):
    out, plus, minus = np.zeros(x.shape), x.copy(), x.copy()
    for i in np.ndindex(x.shape):
        plus[i] += eps
        minus[i] -= eps
        out[i] = (f(plus) - f(minus)) / (2 * eps)
    return out


# -- softmax_backward ------------------------------------------------------------------------------------------------


def soft_formula(weights, grad_weights):
    return weights * (grad_weights - np.sum(weights * grad_weights, axis=-1, keepdims=True))


def soft_jacobian(weights, grad_weights):
    w = weights.reshape(-1, weights.shape[-1])
    g = grad_weights.reshape(w.shape)
    rows = [(np.diag(a) - np.outer(a, a)) @ b for a, b in zip(w, g, strict=True)]
    return np.array(rows).reshape(weights.shape)


def soft_einsum(weights, grad_weights, axis=-1):
    d = weights.shape[-1]
    jacobian = np.einsum("...i,ij->...ij", weights, np.eye(d)) - np.einsum(
        "...i,...j->...ij", weights, weights
    )
    return np.einsum("...ij,...i->...j", jacobian, grad_weights)


def soft_loops(weights, grad_weights):
    out = np.zeros_like(weights)
    for row in np.ndindex(weights.shape[:-1]):
        for j in range(weights.shape[-1]):
            for i in range(weights.shape[-1]):
                delta = 1.0 if i == j else 0.0
                out[row + (j,)] += (
                    grad_weights[row + (i,)] * weights[row + (i,)] * (delta - weights[row + (j,)])
                )
    return out


def soft_torch(weights, grad_weights):
    w, g = torch.from_numpy(weights), torch.from_numpy(grad_weights)
    return torch.ops.aten._softmax_backward_data(g, w, -1, w.dtype).numpy()


def soft_diagonal(weights, grad_weights):
    return weights * (1 - weights) * grad_weights


def soft_product(weights, grad_weights):
    return weights * grad_weights


def soft_mean(weights, grad_weights):
    return weights * (grad_weights - grad_weights.mean(-1, keepdims=True))


def soft_no_weights(weights, grad_weights):
    return grad_weights - (weights * grad_weights).sum(-1, keepdims=True)


def soft_axis_zero(weights, grad_weights):
    return weights * (grad_weights - (weights * grad_weights).sum(0, keepdims=True))


def soft_everything(weights, grad_weights):
    return weights * (grad_weights - (weights * grad_weights).sum())


def soft_no_keepdims(weights, grad_weights):
    return weights * (grad_weights - (weights * grad_weights).sum(-1))


def soft_sign(weights, grad_weights):
    return weights * ((weights * grad_weights).sum(-1, keepdims=True) - grad_weights)


def soft_log(weights, grad_weights):
    return grad_weights - weights * grad_weights.sum(-1, keepdims=True)


def soft_scores(weights, grad_weights):
    e = np.exp(weights - weights.max(-1, keepdims=True))
    return soft_formula(e / e.sum(-1, keepdims=True), grad_weights)


def soft_matrix_only(weights, grad_weights):
    return np.stack([(np.diag(w) - np.outer(w, w)) @ g for w, g in zip(weights, grad_weights, strict=True)])


def soft_in_place(weights, grad_weights):
    grad_weights -= (weights * grad_weights).sum(-1, keepdims=True)
    return weights * grad_weights


def soft_one_sided(weights, grad_weights):
    return weights * grad_weights - (weights * grad_weights).sum(-1, keepdims=True)


def soft_product_mean(weights, grad_weights):
    return weights * (grad_weights - (weights * grad_weights).mean(-1, keepdims=True))


def soft_jacobian_row(weights, grad_weights):
    jacobian = weights[..., :, None] * (np.eye(weights.shape[-1]) - weights[..., :, None])
    return np.einsum("...ij,...j->...i", jacobian, grad_weights)


# -- attention_backward ----------------------------------------------------------------------------------------------


def _forward(query, key, scale):
    scores = query @ key.T * scale
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def attention_formula(query, key, value, grad_output):
    root = np.sqrt(query.shape[1])
    w = _forward(query, key, 1 / root)
    ds = soft_formula(w, grad_output @ value.T) / root
    return ds @ key, ds.T @ query, w.T @ grad_output


def attention_einsum(query, key, value, grad_output):
    scale = query.shape[-1] ** -0.5
    w = _forward(query, key, scale)
    dv = np.einsum("qk,qd->kd", w, grad_output)
    dw = np.einsum("qd,kd->qk", grad_output, value)
    ds = np.einsum("qk,qk->qk", w, dw - np.einsum("qk,qk->q", w, dw)[:, None])
    return [np.einsum("qk,kd->qd", ds, key) * scale, np.einsum("qk,qd->kd", ds, query) * scale, dv]


def attention_autograd(query, key, value, grad_output):
    q, k, v = (torch.tensor(a, requires_grad=True) for a in (query, key, value))
    out = (q @ k.T / math.sqrt(q.shape[-1])).softmax(-1) @ v
    out.backward(torch.from_numpy(grad_output))
    return q.grad.numpy(), k.grad.numpy(), v.grad.numpy()


def attention_loops(query, key, value, grad_output):
    root = math.sqrt(query.shape[1])
    dq, dk, dv = np.zeros_like(query), np.zeros_like(key), np.zeros_like(value)
    for i, (q, g) in enumerate(zip(query, grad_output, strict=True)):
        s = np.array([np.dot(q, k) for k in key]) / root
        w = np.exp(s - s.max())
        w /= w.sum()
        out = sum(a * v for a, v in zip(w, value, strict=True))
        for j in range(len(key)):
            dv[j] += w[j] * g
            ds = w[j] * np.dot(g, value[j] - out) / root
            dq[i] += ds * key[j]
            dk[j] += ds * query[i]
    return dq, dk, dv


class AttentionObject:
    def __call__(self, query, key, value, grad_output):
        dq, dk, dv = attention_formula(query, key, value, grad_output)
        return torch.from_numpy(dq), torch.from_numpy(dk), torch.from_numpy(dv)


def _attention(forward=None, dq_scale=None, dk_scale=None, rule=soft_formula):
    def attention_backward(query, key, value, grad_output):
        root = 1 / math.sqrt(query.shape[-1])
        w = _forward(query, key, root if forward is None else forward(query, value))
        ds = rule(w, grad_output @ value.T)
        return (
            ds @ key * (root if dq_scale is None else dq_scale(root)),
            ds.T @ query * (root if dk_scale is None else dk_scale(root)),
            w.T @ grad_output,
        )

    return attention_backward


attention_no_scale = _attention(lambda q, v: 1.0, lambda r: 1.0, lambda r: 1.0)
attention_forgets = _attention(None, lambda r: 1.0, lambda r: 1.0)
attention_unscaled_forward = _attention(lambda q, v: 1.0)
attention_dk_only = _attention(None, lambda r: 1.0)
attention_dq_twice = _attention(None, lambda r: r * r)
attention_twice = _attention(None, lambda r: r * r, lambda r: r * r)
attention_diagonal = _attention(rule=soft_diagonal)
attention_product = _attention(rule=soft_product)
attention_passed = _attention(rule=lambda w, g: g)
attention_d_k = _attention(lambda q, v: 1 / q.shape[-1], lambda r: r * r, lambda r: r * r)


def attention_order(query, key, value, grad_output):
    dq, dk, dv = attention_formula(query, key, value, grad_output)
    return dv, dk, dq


def attention_negative(query, key, value, grad_output):
    return tuple(-g for g in attention_formula(query, key, value, grad_output))


def attention_value_from_ds(query, key, value, grad_output):
    root = math.sqrt(query.shape[-1])
    w = _forward(query, key, 1 / root)
    ds = soft_formula(w, grad_output @ value.T) / root
    return ds @ key, ds.T @ query, ds.T @ grad_output


def attention_untransposed(query, key, value, grad_output):
    root = math.sqrt(query.shape[-1])
    w = _forward(query, key, 1 / root)
    ds = soft_formula(w, grad_output @ value.T) / root
    return ds @ key, ds.T @ query, w @ grad_output


def attention_key_untransposed(query, key, value, grad_output):
    root = math.sqrt(query.shape[-1])
    w = _forward(query, key, 1 / root)
    ds = soft_formula(w, grad_output @ value.T) / root
    return ds @ key, ds @ query, w.T @ grad_output


def attention_overflows(query, key, value, grad_output):
    root = math.sqrt(query.shape[-1])
    e = np.exp(query @ key.T / root)
    w = e / e.sum(1, keepdims=True)
    ds = soft_formula(w, grad_output @ value.T) / root
    return ds @ key, ds.T @ query, w.T @ grad_output


def attention_over_queries(query, key, value, grad_output):
    root = math.sqrt(query.shape[-1])
    s = query @ key.T / root
    e = np.exp(s - s.max(0, keepdims=True))
    w = e / e.sum(0, keepdims=True)
    dw = grad_output @ value.T
    ds = w * (dw - (w * dw).sum(0, keepdims=True)) / root
    return ds @ key, ds.T @ query, w.T @ grad_output


def attention_value_scaled(query, key, value, grad_output):
    dq, dk, dv = attention_formula(query, key, value, grad_output)
    return dq, dk, dv / math.sqrt(query.shape[-1])


def attention_with_output(query, key, value, grad_output):
    w = _forward(query, key, 1 / math.sqrt(query.shape[-1]))
    return (*attention_formula(query, key, value, grad_output), w @ value)


# -- layer_norm_backward ---------------------------------------------------------------------------------------------


def norm_three_means(x, grad_output, gamma, eps=1e-5):
    std = np.sqrt(x.var(-1, keepdims=True) + eps)
    xhat = (x - x.mean(-1, keepdims=True)) / std
    g = grad_output * gamma
    dx = (g - g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True)) / std
    axes = tuple(range(x.ndim - 1))
    return dx, (grad_output * xhat).sum(axes), grad_output.sum(axes)


def norm_chain(x, grad_output, gamma, eps=1e-5):
    d = x.shape[-1]
    rows, grads = x.reshape(-1, d), grad_output.reshape(-1, d)
    mu = rows.mean(1, keepdims=True)
    var = ((rows - mu) ** 2).mean(1, keepdims=True)
    inv = (var + eps) ** -0.5
    dxhat = grads * gamma
    dvar = np.sum(dxhat * (rows - mu) * -0.5 * inv**3, axis=1, keepdims=True)
    dmu = np.sum(-dxhat * inv, axis=1, keepdims=True) + dvar * np.mean(
        -2 * (rows - mu), axis=1, keepdims=True
    )
    dx = dxhat * inv + dvar * 2 * (rows - mu) / d + dmu / d
    return [dx.reshape(x.shape), np.sum(grads * (rows - mu) * inv, 0), np.sum(grads, 0)]


def norm_jacobian(x, grad_output, gamma, eps=1e-5):
    d = x.shape[-1]
    dx, dgamma, dbeta = np.zeros_like(x), np.zeros(d), np.zeros(d)
    for i in np.ndindex(x.shape[:-1]):
        c = x[i] - x[i].mean()
        s = math.sqrt((c * c).sum() / d + eps)
        j = (np.eye(d) - 1 / d) / s - np.outer(c, c) / (d * s**3)
        dx[i] = j @ (gamma * grad_output[i])
        dgamma += grad_output[i] * c / s
        dbeta += grad_output[i]
    return dx, dgamma, dbeta


def norm_autograd(x, grad_output, gamma, eps=1e-5):
    a, g = torch.tensor(x, requires_grad=True), torch.tensor(gamma, requires_grad=True)
    b = torch.zeros_like(g, requires_grad=True)
    torch.nn.functional.layer_norm(a, a.shape[-1:], g, b, eps).backward(torch.tensor(grad_output))
    return a.grad.numpy(), g.grad.numpy(), b.grad.numpy()


class NormObject:
    def __call__(self, x, grad_output, gamma, eps=1e-5):
        d = x.shape[-1]
        c = x - np.mean(x, axis=-1)[..., None]
        rstd = 1 / np.sqrt(np.einsum("...d,...d->...", c, c)[..., None] / d + eps)
        n = c * rstd
        g = grad_output * gamma
        dx = rstd / d * (d * g - g.sum(-1, keepdims=True) - n * (g * n).sum(-1, keepdims=True))
        return (
            dx,
            np.einsum("nd,nd->d", grad_output.reshape(-1, d), n.reshape(-1, d)),
            grad_output.reshape(-1, d).sum(0),
        )


def _norm(
    variance=lambda x, eps: np.sqrt(x.var(-1, keepdims=True) + eps),
    mean=1.0,
    term=1.0,
    inside=True,
    both=None,
):
    def layer_norm_backward(x, grad_output, gamma, eps=1e-5):
        std = variance(x, eps)
        xhat = (x - x.mean(-1, keepdims=True)) / std
        g = grad_output * gamma if inside else grad_output
        dx = (g - mean * g.mean(-1, keepdims=True) - term * xhat * (g * xhat).mean(-1, keepdims=True)) / std
        axes = tuple(range(x.ndim - 1))
        results = dx, (grad_output * xhat).sum(axes), grad_output.sum(axes)
        return both(*results, gamma) if both else results

    return layer_norm_backward


norm_no_mean = _norm(mean=0.0)
norm_no_variance = _norm(term=0.0)
norm_constant = _norm(mean=0.0, term=0.0)
norm_half = _norm(term=0.5)
norm_sign = _norm(term=-1.0)
norm_unbiased = _norm(lambda x, eps: np.sqrt(x.var(-1, keepdims=True, ddof=1) + eps))
norm_outside = _norm(lambda x, eps: x.std(-1, keepdims=True) + eps)
norm_textbook = _norm(lambda x, eps: x.std(-1, keepdims=True, ddof=1) + eps)
norm_no_eps = _norm(lambda x, eps: x.std(-1, keepdims=True))
norm_no_gamma = _norm(inside=False)
norm_gamma_last = _norm(inside=False, both=lambda dx, dg, db, gamma: (dx * gamma, dg, db))
norm_order = _norm(both=lambda dx, dg, db, gamma: (dx, db, dg))
norm_dgamma_gamma = _norm(both=lambda dx, dg, db, gamma: (dx, dg * gamma, db))
norm_dx_only = _norm(both=lambda dx, dg, db, gamma: dx)


def norm_one_row_too(x, grad_output, gamma, eps=1e-5):
    """Adds the rows up by recursion."""
    if x.ndim > 1:
        parts = [norm_one_row_too(a, g, gamma, eps) for a, g in zip(x, grad_output, strict=True)]
        dx, dgamma, dbeta = zip(*parts, strict=True)
        return np.stack(dx), sum(dgamma), sum(dbeta)
    return norm_three_means(x, grad_output, gamma, eps)


def norm_rows_only(x, grad_output, gamma, eps=1e-5):
    n, d = np.prod(x.shape[:-1]), x.shape[-1]
    dx, dgamma, dbeta = norm_three_means(x.reshape(n, d), grad_output.reshape(n, d), gamma, eps)
    return dx.reshape(x.shape), dgamma, dbeta


def norm_sums_a_row(x, grad_output, gamma, eps=1e-5):
    dx, _, _ = norm_three_means(x, grad_output, gamma, eps)
    xhat = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    dgamma, dbeta = (grad_output * xhat).sum(0), grad_output.sum(0)
    while dgamma.ndim > 1:
        dgamma, dbeta = dgamma.sum(0), dbeta.sum(0)
    return dx, dgamma, dbeta


def _norm_pieces(x, grad_output, gamma, eps):
    std = np.sqrt(x.var(-1, keepdims=True) + eps)
    xhat, axes = (x - x.mean(-1, keepdims=True)) / std, tuple(range(x.ndim - 1))
    return std, xhat, grad_output * gamma, ((grad_output * xhat).sum(axes), grad_output.sum(axes))


def norm_by_length(x, grad_output, gamma, eps=1e-5):
    std, xhat, g, others = _norm_pieces(x, grad_output, gamma, eps)
    along = (g * xhat).sum(-1, keepdims=True) / (xhat * xhat).sum(-1, keepdims=True)
    return (g - g.mean(-1, keepdims=True) - xhat * along) / std, *others


def norm_by_rows(x, grad_output, gamma, eps=1e-5):
    std, xhat, g, others = _norm_pieces(x, grad_output, gamma, eps)
    n = x.shape[0]
    dx = n * g - g.sum(-1, keepdims=True) - xhat * (g * xhat).sum(-1, keepdims=True)
    return dx / (n * std), *others


def norm_bessel(x, grad_output, gamma, eps=1e-5):
    std, xhat, g, others = _norm_pieces(x, grad_output, gamma, eps)
    d = x.shape[-1]
    dx = d * g - g.sum(-1, keepdims=True) - d / (d - 1) * xhat * (g * xhat).sum(-1, keepdims=True)
    return dx / (d * std), *others


def norm_rms(x, grad_output, gamma, eps=1e-5):
    root = np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    h, g, axes = x / root, grad_output * gamma, tuple(range(x.ndim - 1))
    dx = (g - h * (g * h).mean(-1, keepdims=True)) / root
    return dx, (grad_output * h).sum(axes), grad_output.sum(axes)


def norm_whole_array(x, grad_output, gamma, eps=1e-5):
    std = np.sqrt(x.var() + eps)
    xhat, g, axes = (x - x.mean()) / std, grad_output * gamma, tuple(range(x.ndim - 1))
    dx = (g - g.mean() - xhat * (g * xhat).mean()) / std
    return dx, (grad_output * xhat).sum(axes), grad_output.sum(axes)


def norm_default(x, grad_output, gamma, eps=1e-8):
    return norm_three_means(x, grad_output, gamma, eps)


def norm_first_axis_sums(x, grad_output, gamma, eps=1e-5):
    dx, _, _ = norm_three_means(x, grad_output, gamma, eps)
    xhat = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return dx, (grad_output * xhat).sum(0), grad_output.sum(0)


def norm_means(x, grad_output, gamma, eps=1e-5):
    dx, dgamma, dbeta = norm_three_means(x, grad_output, gamma, eps)
    rows = x.size // x.shape[-1]
    return dx, dgamma / rows, dbeta / rows


def norm_raw_dgamma(x, grad_output, gamma, eps=1e-5):
    dx, _, dbeta = norm_three_means(x, grad_output, gamma, eps)
    return dx, (grad_output * x).sum(tuple(range(x.ndim - 1))), dbeta


def norm_batch(x, grad_output, gamma, eps=1e-5):
    std = np.sqrt(x.var(0, keepdims=True) + eps)
    xhat = (x - x.mean(0, keepdims=True)) / std
    g = grad_output * gamma
    dx = (g - g.mean(0, keepdims=True) - xhat * (g * xhat).mean(0, keepdims=True)) / std
    axes = tuple(range(x.ndim - 1))
    return dx, (grad_output * xhat).sum(axes), grad_output.sum(axes)


def norm_in_place(x, grad_output, gamma, eps=1e-5):
    x -= x.mean(-1, keepdims=True)
    return norm_three_means(x, grad_output, gamma, eps)


RIGHT = {
    "numerical_gradient": [
        numerical_basis,
        numerical_flat,
        numerical_nditer,
        NumericalObject(),
        numerical_steps_back,
        numerical_in_flat_view,
    ],
    "softmax_backward": [soft_formula, soft_jacobian, soft_einsum, soft_loops, soft_torch],
    "attention_backward": [
        attention_formula,
        attention_einsum,
        attention_autograd,
        attention_loops,
        AttentionObject(),
    ],
    "layer_norm_backward": [
        norm_three_means,
        norm_chain,
        norm_jacobian,
        norm_autograd,
        NormObject(),
        norm_one_row_too,
    ],
}

WRONG = {
    "numerical_gradient": [
        (numerical_forward, "forward_difference"),
        (numerical_not_halved, "not_halved"),
        (numerical_fixed, "eps_ignored"),
        (numerical_default, "eps_default"),
        (numerical_flat_result, "flattened"),
        (numerical_leaves, "x_not_restored"),
        (numerical_leaves_at_end, "x_not_restored"),
        (numerical_all, "all_entries_at_once"),
        (numerical_sign, "sign"),
        (numerical_rows, "first_axis_only"),
        (numerical_precedence, "multiplied_by_eps"),
        (numerical_two_axes, "fixed_number_of_dimensions"),
        (numerical_returns_early, "first_entry_only"),
        (numerical_alias, "no_difference"),
        (numerical_copies_outside, "copied_once"),
    ],
    "softmax_backward": [
        (soft_diagonal, "diagonal_only"),
        (soft_product, "no_mean"),
        (soft_mean, "mean_not_weighted"),
        (soft_no_weights, "weights_missing"),
        (soft_axis_zero, "sum_over_first_axis"),
        (soft_everything, "sum_over_everything"),
        (soft_no_keepdims, "sum_not_kept"),
        (soft_sign, "sign"),
        (soft_log, "logarithm"),
        (soft_scores, "softmax_again"),
        (soft_matrix_only, "fixed_number_of_dimensions"),
        (soft_in_place, "changes_its_input"),
        (soft_one_sided, None),
        (soft_product_mean, "product_averaged"),
        (soft_jacobian_row, "own_weight_in_sum"),
    ],
    "attention_backward": [
        (attention_no_scale, "no_scale"),
        (attention_forgets, "scale_missing_backward"),
        (attention_unscaled_forward, "scale_missing_forward"),
        (attention_dk_only, "scale_missing_in_query"),
        (attention_twice, "scale_twice_backward"),
        (attention_diagonal, "diagonal_only"),
        (attention_product, "no_mean"),
        (attention_passed, "passed_on"),
        (attention_d_k, "scale_by_d_k"),
        (attention_order, "value_first"),
        (attention_untransposed, "value_not_transposed"),
        (attention_key_untransposed, "key_not_transposed"),
        (attention_overflows, "softmax_overflows"),
        (attention_over_queries, "softmax_over_queries"),
        (attention_value_scaled, "scaled_value"),
        (attention_with_output, "output_too"),
        (attention_dq_twice, "scale_twice_in_query"),
        (attention_negative, "all_negative"),
        (attention_value_from_ds, "value_from_grad_scores"),
    ],
    "layer_norm_backward": [
        (norm_no_mean, "mean_constant"),
        (norm_no_variance, "variance_constant"),
        (norm_constant, "statistics_constant"),
        (norm_half, "variance_term_half"),
        (norm_sign, "variance_term_sign"),
        (norm_unbiased, "unbiased_variance"),
        (norm_outside, "eps_outside_root"),
        (norm_textbook, "unbiased_and_outside"),
        (norm_no_eps, "no_eps"),
        (norm_no_gamma, "no_gamma_in_dx"),
        (norm_gamma_last, "gamma_last"),
        (norm_order, "dbeta_before_dgamma"),
        (norm_dgamma_gamma, "dgamma_times_gamma"),
        (norm_dx_only, "dx_only"),
        (norm_default, "eps_default"),
        (norm_first_axis_sums, "summed_over_first_axis"),
        (norm_means, "means"),
        (norm_raw_dgamma, "dgamma_uses_x"),
        (norm_batch, "over_first_axis"),
        (norm_in_place, "changes_its_input"),
        (norm_rows_only, "needs_an_axis_before_the_last"),
        (norm_sums_a_row, None),
        (norm_by_length, "variance_term_over_length"),
        (norm_by_rows, "divided_by_first_size"),
        (norm_bessel, "variance_term_bessel"),
        (norm_rms, "no_mean_at_all"),
        (norm_whole_array, "over_everything"),
    ],
}
