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


class InPlaceClamp(Plain):
    def forward(self, x):
        return self.fc2(self.drop(self.fc1(x).clamp_(min=0)))


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


class DropoutKeeps(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, 1 - dropout if dropout else 0.0)


class DropoutSquared(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout**2)


class DropoutTwiceInside(Plain):
    def forward(self, x):
        return self.fc2(self.drop(self.drop(self.fc1(x)).relu()))


class DropoutNotDivided(Plain):
    def forward(self, x):
        h = self.fc1(x).relu()
        return self.fc2(h * (torch.rand_like(h) >= self.drop.p) if self.training else h)


class DropoutWholePositions(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff)
        self.drop = nn.Dropout1d(dropout)


class DropoutToNegative(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff)
        self.drop = nn.AlphaDropout(dropout)


class DropoutSeeded(Plain):
    def forward(self, x):
        torch.manual_seed(0)
        return super().forward(x)


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


class QuickGelu(Plain):
    def act(self, h):
        return h * torch.sigmoid(1.702 * h)


class Selu(Plain):
    def act(self, h):
        return F.selu(h)


class Mish(Plain):
    def act(self, h):
        return F.mish(h)


class HardSwish(Plain):
    def act(self, h):
        return F.hardswish(h)


class NormFirstInside(Plain):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        return super().forward(self.norm(x))


class WidthsExchanged(Plain):
    def __init__(self, d_ff, d_model, dropout=0.0):
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


class NormNative(Norm):
    def forward(self, x):
        return torch.native_layer_norm(x, x.shape[-1:], self.gamma, self.beta, self.eps)[0]


class NormFloor(Norm):
    def standard(self, x):
        var, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        return (x - mean) / var.clamp(min=self.eps).sqrt()


class NormMaximum(Norm):
    def standard(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.abs().amax(-1, keepdim=True) + self.eps)


class NormMedian(Norm):
    def standard(self, x):
        deviation = (x.var(-1, keepdim=True, unbiased=False) + self.eps).sqrt()
        return (x - x.median(-1, keepdim=True).values) / deviation


class NormNoBrackets(Norm):
    def standard(self, x):
        var, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        return x - mean / torch.sqrt(var + self.eps)


class NormNoBracketsAtAll(Norm):
    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        return x - mean / torch.sqrt(var + self.eps) * self.gamma + self.beta


class NormAffineFirst(Norm):
    def forward(self, x):
        return self.standard(x * self.gamma + self.beta)


class NormNoKeepdim(Norm):
    def standard(self, x):
        return (x - x.mean(-1)) / (x.var(-1, unbiased=False) + self.eps).sqrt()


class NormOfFive(Norm):
    def standard(self, x):
        return super().standard(x).view(x.shape[0], 5, 6)


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


class SkipTinyEps(Skip):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__(d_model, dropout, norm_first)
        self.norm = nn.LayerNorm(d_model, eps=1e-8)


class SkipFunctional(Skip):
    def pre(self, x, sublayer):
        y = F.layer_norm(x, x.shape[-1:], self.norm.weight, self.norm.bias, 1e-6)
        return F.dropout(sublayer(y), self.drop.p, self.training) + x

    def post(self, x, sublayer):
        y = x + F.dropout(sublayer(x), self.drop.p, self.training)
        return F.layer_norm(y, x.shape[-1:], self.norm.weight, self.norm.bias, 1e-6)


class SkipIntoOutput(Skip):
    def post(self, x, sublayer):
        y = self.drop(sublayer(x))
        return self.norm(y.add_(x))


class SkipForgetsReturn(Skip):
    def forward(self, x, sublayer):
        if not self.norm_first:
            return self.post(x, sublayer)
        x + self.drop(sublayer(self.norm(x)))


class SkipRootHalf(Skip):
    def pre(self, x, sublayer):
        return super().pre(x, sublayer) * 0.5**0.5

    def post(self, x, sublayer):
        return self.norm((x + self.drop(sublayer(x))) * 0.5**0.5)


class SkipTwoNorms(Skip):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__(d_model, dropout, norm_first)
        self.last = nn.LayerNorm(d_model)

    def pre(self, x, sublayer):
        return self.last(super().pre(x, sublayer))


class SkipLargeEps(Skip):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__(d_model, dropout, norm_first)
        self.norm = nn.LayerNorm(d_model, eps=1e-3)


class SkipKeepShare(Skip):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__(d_model, 1 - dropout if dropout else 0.0, norm_first)


class SkipDropsTwice(Skip):
    def pre(self, x, sublayer):
        return x + self.drop(self.drop(sublayer(self.norm(x))))


class SkipDropsBoth(Skip):
    def post(self, x, sublayer):
        return self.norm(x + self.drop(sublayer(self.drop(x))))


class SkipDropsX(Skip):
    def pre(self, x, sublayer):
        return self.drop(x) + sublayer(self.norm(x))


class SkipDropsXToo(Skip):
    def pre(self, x, sublayer):
        return self.drop(x) + self.drop(sublayer(self.norm(x)))


class SkipSeeded(Skip):
    def forward(self, x, sublayer):
        torch.manual_seed(1)
        return super().forward(x, sublayer)


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
    "PositionwiseFeedForward": [Plain, InSequence, Convolution, Raw, PositionByPosition, InPlaceClamp],
    "LayerNorm": [Norm, NormVarMean, NormMoments, NormEinsum, NormGroup],
    "ResidualConnection": [Skip, SkipOwnNorm, SkipFunction, SkipModules, SkipTinyEps, SkipFunctional],
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
        (DropoutKeeps, "dropout_is_share_kept"),
        (DropoutSquared, "dropout_rate_wrong"),
        (DropoutTwiceInside, "dropout_rate_wrong"),
        (DropoutNotDivided, "dropout_not_rescaled"),
        (DropoutWholePositions, "dropout_not_independent"),
        (DropoutToNegative, "dropout_misplaced"),
        (DropoutSeeded, "dropout_not_drawn_anew"),
        (QuickGelu, "quick_gelu"),
        (Selu, "selu"),
        (Mish, "mish"),
        (HardSwish, "hardswish"),
        (NormFirstInside, "norm_of_input_inside"),
        (WidthsExchanged, None),
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
        (NormNative, "not_allowed"),
        (NormFloor, "eps_is_least_variance"),
        (NormMaximum, "largest_deviation"),
        (NormMedian, "median_subtracted"),
        (NormNoBrackets, "brackets_missing"),
        (NormNoBracketsAtAll, "brackets_missing_before_gain"),
        (NormAffineFirst, "affine_before_norm"),
        (NormNoKeepdim, None),
        (NormOfFive, "fixed_shape"),
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
        (SkipIntoOutput, "changes_its_input"),
        (SkipForgetsReturn, "returns_nothing"),
        (SkipRootHalf, None),
        (SkipTwoNorms, None),
        (SkipLargeEps, None),
        (SkipKeepShare, "dropout_is_share_kept"),
        (SkipDropsTwice, "dropout_rate_wrong"),
        (SkipDropsBoth, "dropout_misplaced"),
        (SkipDropsX, "no_dropout_on_sublayer_output"),
        (SkipDropsXToo, "dropout_on_the_sum"),
        (SkipSeeded, "dropout_not_drawn_anew"),
    ],
}
