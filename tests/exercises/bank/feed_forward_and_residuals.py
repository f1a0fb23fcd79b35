"""Answers to the exercises of 07_feed_forward_and_residuals, right and wrong, as people write them."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# -- feed-forward --------------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.fc1 = nn.Linear(d_model, d_ff)
        self.fc2 = nn.Linear(d_ff, d_model)
        self.drop = nn.Dropout(dropout)

    def act(self, h):
        return F.relu(h)

    def forward(self, x):
        return self.fc2(self.drop(self.act(self.fc1(x))))


class InSequence(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model)
        )

    def forward(self, x):
        return self.net(x)


class Convolution(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0, **unused):
        super().__init__()
        self.w_2 = nn.Conv1d(d_ff, d_model, kernel_size=1)
        self.w_1 = nn.Conv1d(d_model, d_ff, kernel_size=1)
        self.p = dropout

    def forward(self, x):
        h = torch.clamp(self.w_1(x.transpose(-1, -2)), min=0)
        return self.w_2(F.dropout(h, self.p, self.training)).transpose(-1, -2)


class Raw(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.W1 = nn.Parameter(torch.randn(d_model, d_ff) / math.sqrt(d_model))
        self.b1 = nn.Parameter(torch.zeros(d_ff))
        self.W2 = nn.Parameter(torch.randn(d_ff, d_model) / math.sqrt(d_ff))
        self.b2 = nn.Parameter(torch.zeros(d_model))
        self.dropout = dropout

    def forward(self, x):
        h = torch.einsum("btd,df->btf", x, self.W1) + self.b1
        h = torch.where(h > 0, h, torch.zeros_like(h))
        if self.training and self.dropout > 0:
            h = h * (torch.rand_like(h) >= self.dropout) / (1 - self.dropout)
        return torch.einsum("btf,fd->btd", h, self.W2) + self.b2


class PositionByPosition(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.drop = nn.Dropout(p=dropout)

    def forward(self, x):
        out = []
        for t in range(x.size(1)):
            out.append(
                self.down(torch.relu(self.drop(self.up(x[:, t]))))
            )  # the same after or before the ReLU
        return torch.stack(out, dim=1)


class NoRelu(Plain):
    def act(self, h):
        return h


class Gelu(Plain):
    def act(self, h):
        return F.gelu(h)


class Leaky(Plain):
    def act(self, h):
        return F.leaky_relu(h)


class ReluLast(Plain):
    def forward(self, x):
        return torch.relu(self.fc2(self.drop(self.fc1(x))))


class ReluTwice(Plain):
    def forward(self, x):
        return torch.relu(super().forward(x))


class Residual(Plain):
    def forward(self, x):
        return x + super().forward(x)


class ResidualAndNorm(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, x):
        return self.layer_norm(super().forward(x) + x)


class NoBias(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.a = nn.Linear(d_model, d_ff, bias=False)
        self.b = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.b(self.dropout(self.a(x).relu()))


class FourTimes(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, 4 * d_model, dropout)


class DropoutLast(Plain):
    def forward(self, x):
        return self.drop(self.fc2(self.fc1(x).relu()))


class DropoutEverywhere(Plain):
    def forward(self, x):
        return self.drop(self.fc2(self.drop(self.fc1(x).relu())))


class DropoutFirst(Plain):
    def forward(self, x):
        return self.fc2(self.fc1(self.drop(x)).relu())


class DropoutForgotten(Plain):
    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


class DropoutAlways(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff)
        self.p = dropout

    def forward(self, x):
        return self.fc2(F.dropout(self.fc1(x).relu(), self.p))


class DropoutFixed(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, 0.1)


class DropoutByDefault(Plain):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__(d_model, d_ff, dropout)


class Hidden(Plain):
    def forward(self, x):
        return self.drop(self.fc1(x).relu())


class InPlace(Plain):
    def forward(self, x):
        y = super().forward(x)
        x += y
        return y


class InAList(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.layers = [nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class WideConvolution(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.c1 = nn.Conv1d(d_model, d_ff, 3, padding=1)
        self.c2 = nn.Linear(d_ff, d_model)
        self.d = nn.Dropout(dropout)

    def forward(self, x):
        return self.c2(self.d(self.c1(x.transpose(1, 2)).relu().transpose(1, 2)))


class Detached(Plain):
    def forward(self, x):
        return self.fc2(self.drop(self.fc1(x).relu()).detach())


# -- LayerNorm -----------------------------------------------------------------------------------------------------------


class Norm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def standard(self, x):
        mu = x.mean(-1, keepdim=True)
        var = ((x - mu) ** 2).mean(-1, keepdim=True)
        return (x - mu) / torch.sqrt(var + self.eps)

    def forward(self, x):
        return self.gamma * self.standard(x) + self.beta


class NormVarMean(Norm):
    def standard(self, x):
        var, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        return (x - mean) * torch.rsqrt(var + self.eps)


class NormMoments(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.b_2 = nn.Parameter(torch.zeros(1, 1, d_model))
        self.a_2 = nn.Parameter(torch.ones(1, 1, d_model))
        self.eps = eps

    def forward(self, x):
        d = x.shape[-1]
        s, q = x.sum(dim=2, keepdim=True), (x * x).sum(dim=2, keepdim=True)
        return (x - s / d) / (q / d - (s / d) ** 2 + self.eps) ** 0.5 * self.a_2 + self.b_2


class NormEinsum(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.eps, self.d = eps, d_model

    def forward(self, x):
        x = x - torch.einsum("btd->bt", x).unsqueeze(-1) / self.d
        power = torch.einsum("btd,btd->bt", x, x).unsqueeze(-1) / self.d
        return torch.addcmul(self.bias, x / (power + self.eps).sqrt(), self.scale)


class NormGroup(nn.Module):
    """One group of d_model channels."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.inner = nn.GroupNorm(1, d_model, eps=eps)

    def forward(self, x):
        return self.inner(x.reshape(-1, x.size(-1))).view(x.shape)


class NormUnbiased(Norm):
    def standard(self, x):
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + self.eps)


class NormAnnotated(Norm):
    def standard(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)


class NormOutside(Norm):
    def standard(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + self.eps)


class NormNoRoot(Norm):
    def standard(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + self.eps)


class NormRms(Norm):
    def standard(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class NormOverTwo(Norm):
    def standard(self, x):
        var, mean = torch.var_mean(x, dim=(-2, -1), unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + self.eps)


class NormOverTime(Norm):
    def standard(self, x):
        var, mean = torch.var_mean(x, dim=1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + self.eps)


class NormOverBatch(Norm):
    def standard(self, x):
        var, mean = torch.var_mean(x, dim=0, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + self.eps)


class NormNoGain(Norm):
    def forward(self, x):
        return self.standard(x)


class NormScalar(Norm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(1, eps)


class NormZeroGain(Norm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        nn.init.zeros_(self.gamma)


class NormOneShift(Norm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        nn.init.ones_(self.beta)


class NormOtherDefault(Norm):
    def __init__(self, d_model, eps=1e-6):
        super().__init__(d_model, eps)


class NormFixedEps(Norm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model)


class NormNoEps(Norm):
    def standard(self, x):
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, unbiased=False)


class NormDetached(Norm):
    def standard(self, x):
        with torch.no_grad():
            var, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + self.eps)


class NormRunning(Norm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.register_buffer("mean", torch.zeros(1))

    def standard(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean().detach()
        return super().standard(x) + 0.01 * self.mean


class NormBuffers(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gain, self.shift, self.eps = torch.ones(d_model), torch.zeros(d_model), eps

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + self.eps) * self.gain + self.shift


class NormLibrary(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.n = nn.LayerNorm(d_model, eps)

    def forward(self, x):
        return self.n(x)


# -- residual connection -------------------------------------------------------------------------------------------------


class Skip(nn.Module):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)
        self.norm_first = norm_first

    def pre(self, x, sublayer):
        return x + self.drop(sublayer(self.norm(x)))

    def post(self, x, sublayer):
        return self.norm(x + self.drop(sublayer(x)))

    def forward(self, x, sublayer):
        return self.pre(x, sublayer) if self.norm_first else self.post(x, sublayer)


class SkipOwnNorm(nn.Module):
    def __init__(self, d_model, dropout=0.0, norm_first=False, eps=1e-6):
        super().__init__()
        self.bias, self.weight = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.ones(d_model))
        self.rate, self.norm_first, self.eps = dropout, norm_first, eps

    def _norm(self, x):
        var, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + self.eps) * self.weight + self.bias

    def forward(self, x, sublayer):
        inner = self._norm(x) if self.norm_first else x
        out = x + F.dropout(sublayer(inner), p=self.rate, training=self.training)
        return out if self.norm_first else self._norm(out)


class SkipFunction(nn.Module):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.ln = nn.LayerNorm([d_model])
        self.dropout = dropout
        self.before = self.ln if norm_first else (lambda t: t)
        self.after = (lambda t: t) if norm_first else self.ln

    def forward(self, x, sublayer):
        y = sublayer(self.before(x))
        if self.training:
            keep = torch.bernoulli(torch.full_like(y, 1 - self.dropout))
            y = y * keep / (1 - self.dropout)
        return self.after(torch.add(x, y))


class SkipModules(nn.Module):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.parts = nn.ModuleDict({"norm": Norm(d_model), "drop": nn.Dropout(dropout)})
        self.norm_first = bool(norm_first)

    def forward(self, x, sublayer, *args):
        residual = x
        if self.norm_first:
            x = self.parts["norm"](x)
        x = residual + self.parts["drop"](sublayer(x))
        if not self.norm_first:
            x = self.parts["norm"](x)
        return x


class SkipAlwaysPre(Skip):
    def forward(self, x, sublayer):
        return self.pre(x, sublayer)


class SkipAlwaysPost(Skip):
    def forward(self, x, sublayer):
        return self.post(x, sublayer)


class SkipInverted(Skip):
    def forward(self, x, sublayer):
        return self.post(x, sublayer) if self.norm_first else self.pre(x, sublayer)


class SkipPreNormed(Skip):
    def pre(self, x, sublayer):
        x = self.norm(x)
        return x + self.drop(sublayer(x))


class SkipNone(Skip):
    def pre(self, x, sublayer):
        return self.drop(sublayer(self.norm(x)))

    def post(self, x, sublayer):
        return self.norm(self.drop(sublayer(x)))


class SkipItself(Skip):
    def pre(self, x, sublayer):
        x = self.drop(sublayer(self.norm(x)))
        return x + x


class SkipNormOfOutput(Skip):
    def post(self, x, sublayer):
        return x + self.norm(self.drop(sublayer(x)))


class SkipBoth(Skip):
    def pre(self, x, sublayer):
        return self.norm(x + self.drop(sublayer(self.norm(x))))


class SkipNoNorm(Skip):
    def post(self, x, sublayer):
        return x + self.drop(sublayer(x))


class SkipUnbiased(Skip):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__(d_model, dropout, norm_first)
        self.norm = NormAnnotated(d_model, eps=1e-6)


class SkipDropsSum(Skip):
    def pre(self, x, sublayer):
        return self.drop(x + sublayer(self.norm(x)))

    def post(self, x, sublayer):
        return self.norm(self.drop(x + sublayer(x)))


class SkipDropsLast(Skip):
    def post(self, x, sublayer):
        return self.drop(self.norm(x + sublayer(x)))


class SkipNoDropout(Skip):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__(d_model, 0.0, norm_first)


class SkipDropsInput(Skip):
    def pre(self, x, sublayer):
        return x + sublayer(self.drop(self.norm(x)))


class SkipDetached(Skip):
    def pre(self, x, sublayer):
        return x.detach() + self.drop(sublayer(self.norm(x)))

    def post(self, x, sublayer):
        return self.norm(x.detach() + self.drop(sublayer(x)))


class SkipInPlace(Skip):
    def pre(self, x, sublayer):
        y = self.drop(sublayer(self.norm(x)))
        x += y
        return x


class SkipTwice(Skip):
    def post(self, x, sublayer):
        y = sublayer(x)
        return self.norm(x + self.drop(sublayer(x))) + 0 * y


class SkipTuple(Skip):
    def forward(self, x, sublayer):
        return super().forward(x, sublayer), x


RIGHT = {
    "PositionwiseFeedForward": [Plain, InSequence, Convolution, Raw, PositionByPosition],
    "LayerNorm": [Norm, NormVarMean, NormMoments, NormEinsum, NormGroup],
    "ResidualConnection": [Skip, SkipOwnNorm, SkipFunction, SkipModules],
}
WRONG = {
    "PositionwiseFeedForward": [
        (NoRelu, "no_relu"),
        (Gelu, "gelu"),
        (Leaky, "leaky_relu"),
        (ReluLast, "relu_after_second"),
        (ReluTwice, "relu_on_both"),
        (Residual, "feed_forward_residual_inside"),
        (ResidualAndNorm, "residual_and_norm_inside"),
        (NoBias, "no_biases"),
        (FourTimes, "d_ff_ignored"),
        (DropoutLast, "dropout_on_output"),
        (DropoutEverywhere, "dropout_twice"),
        (DropoutFirst, "dropout_on_input"),
        (DropoutForgotten, "dropout_unused"),
        (DropoutAlways, "dropout_in_eval"),
        (DropoutFixed, "dropout_argument_ignored"),
        (DropoutByDefault, "default_of_dropout"),
        (Hidden, "returns_hidden"),
        (InPlace, "changes_its_input"),
        (InAList, "parameters_not_registered"),
        (WideConvolution, "mixes_positions"),
        (Detached, "no_gradient_to_x"),
    ],
    "LayerNorm": [
        (NormUnbiased, "unbiased_variance"),
        (NormAnnotated, "unbiased_variance+eps_outside_root"),
        (NormOutside, "eps_outside_root"),
        (NormNoRoot, "no_root"),
        (NormRms, "no_centring"),
        (NormOverTwo, "norm_over_sequence_and_features"),
        (NormOverTime, "norm_over_sequence"),
        (NormOverBatch, "norm_over_batch"),
        (NormNoGain, "no_gain_and_shift"),
        (NormScalar, "scalar_gain_and_shift"),
        (NormZeroGain, "gain_starts_at_zero"),
        (NormOneShift, "shift_starts_at_one"),
        (NormOtherDefault, "default_of_eps"),
        (NormFixedEps, "eps_ignored"),
        (NormNoEps, "no_eps"),
        (NormDetached, "statistics_detached"),
        (NormRunning, "keeps_state"),
        (NormBuffers, "no_gain_and_shift"),
        (NormLibrary, "not_allowed"),
    ],
    "ResidualConnection": [
        (SkipAlwaysPre, "always_pre_norm"),
        (SkipAlwaysPost, "norm_first_ignored"),
        (SkipInverted, "norm_first_inverted"),
        (SkipPreNormed, "pre_residual_is_normed"),
        (SkipNone, "no_residual"),
        (SkipItself, "pre_output_added_to_itself"),
        (SkipNormOfOutput, "post_norm_on_sublayer_output"),
        (SkipBoth, "pre_norm_before_and_after"),
        (SkipNoNorm, "post_no_norm"),
        (SkipUnbiased, "unbiased_variance+eps_outside_root"),
        (SkipDropsSum, "dropout_on_the_sum"),
        (SkipDropsLast, "dropout_on_the_sum"),
        (SkipNoDropout, "dropout_unused"),
        (SkipDropsInput, "dropout_on_sublayer_input"),
        (SkipDetached, "residual_detached"),
        (SkipInPlace, "changes_its_input"),
        (SkipTwice, "sublayer_called_twice"),
        (SkipTuple, "returns_tuple"),
    ],
}
