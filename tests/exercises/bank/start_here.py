"""Answers to the exercises of 00, right and wrong."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import functional as functions

# -- softmax: right --------------------------------------------------------------------------------------------------


def softmax_nan_to_num(x, dim=-1):
    e = torch.exp(x - x.max(dim=dim, keepdim=True).values)
    return torch.nan_to_num(e / e.sum(dim=dim, keepdim=True), nan=0.0)


def softmax_where(x, dim=-1, extra=None):
    top = x.amax(dim=dim, keepdim=True)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    e = torch.exp(x - top)
    return e / e.sum(dim, keepdim=True).clamp(min=1e-30)


def softmax_loops(x, dim=-1):
    moved = x.movedim(dim, -1)
    rows = moved.reshape(-1, moved.shape[-1])
    out = []
    for row in rows:
        top = max(row.tolist())
        if top == -math.inf:
            out.append(torch.zeros_like(row))
            continue
        powers = [torch.exp(value - top) for value in row]
        total = sum(powers)
        out.append(torch.stack([p / total for p in powers]))
    return torch.stack(out).reshape(moved.shape).movedim(-1, dim)


def softmax_logsumexp(x, dim=-1):
    total = torch.logsumexp(x, dim, keepdim=True)
    return torch.where(total == -math.inf, torch.zeros_like(x), (x - total).exp())


class SoftmaxObject:
    def __call__(self, x, dim=-1):
        empty = (x == float("-inf")).all(dim, keepdim=True)
        safe = x.masked_fill(empty, 0)
        e = (safe - safe.max(dim, True)[0]).exp()
        return (e / e.sum(dim, True)).masked_fill(empty, 0)


class SoftmaxModule(nn.Module):
    def forward(self, x, dim=-1):
        y = x.to(torch.float64)
        e = (y - y.amax(dim, keepdim=True)).exp()
        return (e / (e.sum(dim, keepdim=True) + 1e-12)).nan_to_num(0).to(x.dtype)


# -- softmax: wrong --------------------------------------------------------------------------------------------------


def softmax_naive(x, dim=-1):
    e = torch.exp(x)
    return e / e.sum(dim=dim, keepdim=True)


def softmax_naive_zeros(x, dim=-1):
    e = torch.exp(x)
    total = e.sum(dim, keepdim=True)
    return torch.where(total > 0, e / total, torch.zeros_like(e))


def softmax_nan(x, dim=-1):
    e = torch.exp(x - x.max(dim, keepdim=True).values)
    return e / e.sum(dim, keepdim=True)


def softmax_global_max(x, dim=-1):
    e = torch.exp(x - x.max())
    return (e / e.sum(dim, keepdim=True)).nan_to_num(0)


def softmax_global_max_eps(x, dim=-1):
    top = x.max()
    e = torch.exp(x - (0 if top == -math.inf else top))
    return e / (e.sum(dim, keepdim=True) + 1e-12)


def softmax_last_axis(x, dim=-1):
    e = torch.exp(x - x.max(-1, keepdim=True).values)
    return (e / e.sum(-1, keepdim=True)).nan_to_num(0)


def softmax_default_one(x, dim=1):
    if x.dim() == 1:
        dim = 0
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).nan_to_num(0)


def softmax_default_zero(x, dim=0):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).nan_to_num(0)


def softmax_all_sum(x, dim=-1):
    e = torch.exp(x - x.amax(dim, keepdim=True)).nan_to_num(0)
    return e / e.sum()


def softmax_no_keepdim(x, dim=-1):
    e = torch.exp(x - x.amax(dim, keepdim=True)).nan_to_num(0)
    return e / e.sum(dim).clamp(min=1e-9)


def softmax_eps_in_the_way(x, dim=-1):
    e = torch.exp(x - x.amax(dim, keepdim=True)).nan_to_num(0)
    return e / (e.sum(dim, keepdim=True) + 0.01)


def softmax_detached(x, dim=-1):
    y = x.detach()
    e = torch.exp(y - y.amax(dim, keepdim=True)).nan_to_num(0)
    return e / e.sum(dim, keepdim=True).clamp(min=1e-9)


def softmax_in_place(x, dim=-1):
    with torch.no_grad():
        top = x.amax(dim, keepdim=True)
        x -= top.masked_fill(top == -math.inf, 0)
    e = x.exp()
    return e / e.sum(dim, keepdim=True).clamp(min=1e-9)


def softmax_uniform(x, dim=-1):
    x = x.clamp(min=torch.finfo(x.dtype).min)
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def softmax_log(x, dim=-1):
    top = x.amax(dim, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0)
    return (x - top) - (x - top).exp().sum(dim, keepdim=True).log()


def softmax_mean(x, dim=-1):
    top = x.masked_fill(x == -math.inf, 0).mean(dim, keepdim=True)
    e = (x - top).exp()
    return (e / e.sum(dim, keepdim=True)).nan_to_num(0)


def softmax_numbers(x, dim=-1):
    y = x.detach().numpy()
    import numpy as np

    e = np.exp(y - y.max(axis=dim, keepdims=True))
    return e / e.sum(axis=dim, keepdims=True)


def softmax_torch(x, dim=-1):
    return torch.softmax(x, dim).nan_to_num(0)


def softmax_log_softmax(x, dim=-1):
    return functions.log_softmax(x, dim=dim).exp().nan_to_num(0)


def softmax_module(x, dim=-1):
    return nn.Softmax(dim)(x).nan_to_num(0)


def softmax_negative(x, dim=-1):
    e = torch.exp(x.amax(dim, keepdim=True) - x)
    total = e.sum(dim, keepdim=True)
    return torch.where(total.isfinite(), e / total, torch.zeros_like(e))


def softmax_only_two_axes(x, dim=-1):
    rows = x if dim in (-1, 1) else x.T
    out = []
    for row in rows:
        e = (row - row.max()).exp() if row.max() > -math.inf else torch.zeros_like(row)
        out.append(e / e.sum().clamp(min=1e-9))
    out = torch.stack(out)
    return out if dim in (-1, 1) else out.T


def softmax_half_clamped(x, dim=-1):
    e = torch.exp(x.clamp(-50, 50))
    e = e.masked_fill(x == -math.inf, 0)
    return e / e.sum(dim, keepdim=True).clamp(min=1e-30)


# -- Linear: right ---------------------------------------------------------------------------------------------------


class LinearPlain(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in) * 0.02)
        if bias:
            self.bias = nn.Parameter(torch.zeros(d_out))
        else:
            self.register_parameter("bias", None)

    def forward(self, x):
        out = torch.matmul(x, self.weight.t())
        if self.bias is not None:
            out = out + self.bias
        return out


class LinearEinsum(nn.Module):
    def __init__(self, d_in, d_out, bias=True, device=None, dtype=None):
        super().__init__()
        self.use_bias = bias
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        nn.init.xavier_uniform_(self.weight)
        if bias:
            self.bias = nn.Parameter(torch.rand(d_out, device=device, dtype=dtype))

    def forward(self, x):
        y = torch.einsum("...i,oi->...o", x, self.weight)
        return y + self.bias if self.use_bias else y


class LinearLoops(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        nn.Module.__init__(self)
        self.weight = torch.nn.Parameter(torch.rand(d_out, d_in))
        self.bias = torch.nn.Parameter(torch.rand(d_out)) if bias else None

    def forward(self, x):
        outputs = []
        for o in range(self.weight.shape[0]):
            y = (x * self.weight[o]).sum(dim=-1)
            outputs.append(y if self.bias is None else y + self.bias[o])
        return torch.stack(outputs, dim=-1)


class LinearFlat(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        bias = torch.zeros(self.weight.shape[0], dtype=x.dtype) if self.bias is None else self.bias
        return torch.addmm(bias, flat, self.weight.transpose(0, 1)).reshape(*x.shape[:-1], -1)


class LinearBroadcast(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.weight = nn.Parameter(torch.randn(d_out, d_in) / math.sqrt(d_in))
        self.bias = nn.Parameter(torch.randn(d_out)) if bias else None

    def forward(self, x):
        y = (self.weight @ x.unsqueeze(-1)).squeeze(-1)
        return y if self.bias is None else self.bias + y


# -- Linear: wrong ---------------------------------------------------------------------------------------------------


class LinearNotTransposed(LinearPlain):
    def forward(self, x):
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class LinearTransposedWeight(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_in, d_out))
        self.bias = nn.Parameter(torch.randn(d_out)) if bias else None

    def forward(self, x):
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class LinearPlainTensors(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = torch.randn(d_out, d_in, requires_grad=True)
        self.bias = torch.randn(d_out, requires_grad=True) if bias else None

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class LinearBuffers(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.register_buffer("weight", torch.randn(d_out, d_in))
        self.register_buffer("bias", torch.randn(d_out) if bias else None)

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class LinearBiasForgotten(LinearPlain):
    def forward(self, x):
        return x @ self.weight.T


class LinearBiasAlways(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in))
        self.bias = nn.Parameter(torch.randn(d_out))

    def forward(self, x):
        return x @ self.weight.T + self.bias


class LinearNoBiasCrash(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in))
        self.bias = nn.Parameter(torch.randn(d_out)) if bias else None

    def forward(self, x):
        return x @ self.weight.T + self.bias


class LinearBiasOff(LinearPlain):
    def __init__(self, d_in, d_out, bias=False):
        super().__init__(d_in, d_out, bias)


class LinearBiasRow(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in))
        self.bias = nn.Parameter(torch.randn(1, d_out)) if bias else None

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class LinearNames(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.W = nn.Parameter(torch.randn(d_out, d_in))
        self.b = nn.Parameter(torch.randn(d_out)) if bias else None

    def forward(self, x):
        y = x @ self.W.T
        return y if self.b is None else y + self.b


class LinearZeros(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d_out, d_in))
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class LinearRelu(LinearPlain):
    def forward(self, x):
        return torch.relu(super().forward(x))


class LinearTwoAxes(LinearPlain):
    def forward(self, x):
        y = torch.mm(x, self.weight.t())
        return y if self.bias is None else y + self.bias


class LinearData(LinearPlain):
    def forward(self, x):
        y = x @ self.weight.data.T
        return y if self.bias is None else y + self.bias


class LinearNoSuper(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        self.weight = nn.Parameter(torch.randn(d_out, d_in))
        self.bias = nn.Parameter(torch.randn(d_out)) if bias else None

    def forward(self, x):
        return x @ self.weight.T + self.bias


class LinearNoReturn(LinearPlain):
    def forward(self, x):
        y = x @ self.weight.T
        y if self.bias is None else y + self.bias  # noqa: B018


class LinearNoModule:
    def __init__(self, d_in, d_out, bias=True):
        self.weight = torch.randn(d_out, d_in)
        self.bias = torch.randn(d_out)

    def __call__(self, x):
        return x @ self.weight.T + self.bias


class LinearFunctional(LinearPlain):
    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class LinearInside(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        inner = nn.Linear(d_in, d_out, bias)
        self.weight, self.bias = inner.weight, inner.bias

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class LinearScaled(LinearPlain):
    def forward(self, x):
        y = x @ self.weight.T / math.sqrt(x.shape[-1])
        return y if self.bias is None else y + self.bias


class LinearFlattens(LinearPlain):
    def forward(self, x):
        y = x.reshape(-1, x.shape[-1]) @ self.weight.T
        return y if self.bias is None else y + self.bias


RIGHT = {
    "softmax": [
        softmax_nan_to_num,
        softmax_where,
        softmax_loops,
        softmax_logsumexp,
        SoftmaxObject(),
        SoftmaxModule(),
    ],
    "Linear": [LinearPlain, LinearEinsum, LinearLoops, LinearFlat, LinearBroadcast],
}

WRONG = {
    "softmax": [
        (softmax_naive, "overflows+nan_for_all_minus_infinity"),
        (softmax_naive_zeros, "overflows_or_zero"),
        (softmax_nan, "nan_for_all_minus_infinity"),
        (softmax_global_max, "maximum_of_everything_zeros"),
        (softmax_global_max_eps, "maximum_of_everything_zeros"),
        (softmax_last_axis, "dim_ignored"),
        (softmax_default_one, "default_second_axis"),
        (softmax_default_zero, "default_first_axis"),
        (softmax_all_sum, "sum_of_everything"),
        (softmax_no_keepdim, "sum_not_kept"),
        (softmax_eps_in_the_way, "eps_too_large"),
        (softmax_detached, "gradient_cut_off"),
        (softmax_in_place, "changes_its_input"),
        (softmax_uniform, "uniform_for_all_minus_infinity"),
        (softmax_log, "nan_for_all_minus_infinity+logarithm"),
        (softmax_mean, None),
        (softmax_numbers, "nan_for_all_minus_infinity"),
        (softmax_torch, "not_allowed"),
        (softmax_log_softmax, "not_allowed"),
        (softmax_module, "not_allowed"),
        (softmax_negative, None),
        (softmax_only_two_axes, None),
        (softmax_half_clamped, "clamped"),
    ],
    "Linear": [
        (LinearNotTransposed, "weight_not_transposed"),
        (LinearTransposedWeight, "weight_transposed"),
        (LinearPlainTensors, "parameters_not_registered"),
        (LinearBuffers, "parameters_not_registered"),
        (LinearBiasForgotten, "bias_not_added"),
        (LinearBiasAlways, "bias_argument_ignored"),
        (LinearNoBiasCrash, "crashes_without_bias"),
        (LinearBiasOff, "bias_off_by_default"),
        (LinearBiasRow, "wrong_parameter_shape"),
        (LinearNames, "parameter_names_differ"),
        (LinearZeros, "weights_start_equal"),
        (LinearRelu, "relu"),
        (LinearTwoAxes, "fixed_number_of_dimensions"),
        (LinearData, "no_gradient_to_weight"),
        (LinearNoSuper, "super_init_missing"),
        (LinearNoReturn, "returns_nothing"),
        (LinearNoModule, "not_a_module"),
        (LinearFunctional, "not_allowed"),
        (LinearInside, "not_allowed"),
        (LinearScaled, "scaled"),
        (LinearFlattens, "flattened"),
    ],
}
