"""Answers to the exercises of 06, right and wrong."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# -- the table: right ------------------------------------------------------------------------------------------------


def table_loops(n_positions, d_model):
    rows = []
    for pos in range(n_positions):
        row = []
        for column in range(d_model):
            angle = pos / 10000 ** ((column - column % 2) / d_model)
            row.append(math.cos(angle) if column % 2 else math.sin(angle))
        rows.append(row)
    return torch.tensor(rows)


def table_exp_log(n_positions, d_model):
    pe = torch.zeros(n_positions, d_model)
    position = torch.arange(0, n_positions, dtype=torch.float).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)[:, : pe[:, 1::2].shape[1]]
    return pe


def table_numpy(n_positions, d_model):
    column = np.arange(d_model)
    angles = np.arange(n_positions)[:, None] / np.power(10000.0, 2 * (column // 2) / d_model)
    out = np.where(column % 2 == 0, np.sin(angles), np.cos(angles))
    return torch.from_numpy(out).float()


def table_complex(n_positions, d_model, base=10000.0):
    pairs = math.ceil(d_model / 2)
    omega = base ** (-2 * torch.arange(pairs) / d_model)
    turns = torch.polar(torch.ones(n_positions, pairs), torch.outer(torch.arange(n_positions).float(), omega))
    return torch.stack((turns.imag, turns.real), dim=-1).reshape(n_positions, -1)[:, :d_model]


class TableObject:
    """By the rule for the sum of two angles, position after position."""

    def __call__(self, n_positions, d_model):
        omega = 1.0 / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        sin, cos = torch.zeros_like(omega), torch.ones_like(omega)
        rows = []
        for _ in range(n_positions):
            rows.append(torch.stack((sin, cos), -1).flatten()[:d_model])
            sin, cos = sin * omega.cos() + cos * omega.sin(), cos * omega.cos() - sin * omega.sin()
        return torch.stack(rows).to(torch.float32)


def table_shifted_sine(n_positions, d_model):
    column = torch.arange(d_model)
    angle = torch.arange(n_positions)[:, None] / 10000 ** ((column - column % 2) / d_model)
    return torch.sin(angle + (column % 2) * math.pi / 2)


# -- the table: wrong ------------------------------------------------------------------------------------------------


def _pe(n, d, sine, cosine=None):
    position = torch.arange(n, dtype=torch.float)[:, None]
    pe = torch.zeros(n, d)
    pe[:, 0::2] = torch.sin(position * sine)
    pe[:, 1::2] = torch.cos(position * (sine if cosine is None else cosine))[:, : d // 2]
    return pe


def table_every_column(n, d):
    pe = torch.zeros(n, d)
    for pos in range(n):
        for i in range(0, d, 2):
            pe[pos, i] = math.sin(pos / 10000 ** (2 * i / d))
            if i + 1 < d:
                pe[pos, i + 1] = math.cos(pos / 10000 ** (2 * (i + 1) / d))
    return pe


def table_doubled(n, d):
    i = torch.arange(0, d, 2).float()
    return _pe(n, d, 10000.0 ** (-2 * i / d))


def table_own_exponent(n, d):
    i = torch.arange(0, d, 2).float()
    return _pe(n, d, 10000.0 ** (-i / d), 10000.0 ** (-(i + 1) / d))


def table_halved(n, d):
    i = torch.arange((d + 1) // 2).float()
    return _pe(n, d, 10000.0 ** (-i / d))


def table_floor(n, d):
    i = torch.arange(0, d, 2).float()
    return _pe(n, d, torch.exp(i * (-math.log(10000.0) / d // 2)))


def table_integer(n, d):
    position = torch.arange(n)[:, None]
    angle = position // 10000 ** (torch.arange(0, d, 2) / d)
    pe = torch.zeros(n, d)
    pe[:, 0::2] = angle.sin()
    pe[:, 1::2] = angle.cos()[:, : d // 2]
    return pe


def table_blocks(n, d):
    omega = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
    angle = torch.arange(n)[:, None] * omega
    return torch.cat((angle.sin(), angle.cos()[:, : d // 2]), dim=-1)


def table_exchanged(n, d):
    omega = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
    angle = torch.arange(n)[:, None] * omega
    pe = torch.zeros(n, d)
    pe[:, 0::2] = angle.cos()
    pe[:, 1::2] = angle.sin()[:, : d // 2]
    return pe


def table_odd_crash(n, d):
    position = torch.arange(n).unsqueeze(1)
    div = torch.exp(torch.arange(0, d, 2) * -(math.log(10000.0) / d))
    pe = torch.zeros(n, d)
    pe[:, 0::2] = torch.sin(position * div)
    pe[:, 1::2] = torch.cos(position * div)
    return pe


def table_odd_numpy(n, d):
    angles = np.arange(n)[:, None] / np.power(10000.0, np.arange(0, d, 2) / d)
    out = np.zeros((n, d))
    out[:, 0::2] = np.sin(angles)
    out[:, 1::2] = np.cos(angles)
    return torch.from_numpy(out)


def table_crash_and_halved(n, d):
    div = torch.exp(torch.arange(0, d, 2) / 2 * -(math.log(10000.0) / d))
    pe = torch.zeros(n, d)
    pe[:, 0::2] = torch.sin(torch.arange(n).unsqueeze(1) * div)
    pe[:, 1::2] = torch.cos(torch.arange(n).unsqueeze(1) * div)
    return pe


def table_from_one(n, d):
    return table_exp_log(n + 1, d)[1:]


def table_sign(n, d):
    return _pe(n, d, torch.exp(torch.arange(0, d, 2).float() * (math.log(10000.0) / d)))


def table_batched(n, d):
    return table_exp_log(n, d).unsqueeze(0)


def table_sequence_first(n, d):
    return table_exp_log(n, d).unsqueeze(1)


def table_only_sines(n, d):
    column = torch.arange(d)
    return torch.sin(torch.arange(n)[:, None] / 10000 ** ((column - column % 2) / d))


def table_array(n, d):
    return table_numpy(n, d).numpy()


def table_tensor2tensor(n, d):
    pairs = (d + 1) // 2
    omega = torch.exp(torch.arange(pairs) * -(math.log(10000.0) / max(pairs - 1, 1)))
    return _pe(n, d, omega)


def table_base_1000(n, d):
    return _pe(n, d, 1000.0 ** (-torch.arange(0, d, 2).float() / d))


def table_even_width(n, d):
    return table_exp_log(n, d + d % 2)[:, :d]


def table_from_pair_one(n, d):
    return _pe(n, d, 10000.0 ** (-(torch.arange(0, d, 2).float() + 2) / d))


def table_512(n, d):
    return _pe(n, d, 10000.0 ** (-torch.arange(0, d, 2).float() / 512))


def table_half_positions(n, d):
    angle = torch.arange(n).half().float()[:, None] * 10000.0 ** (-torch.arange(0, d, 2).float() / d)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :d]


def table_thousand(n, d):
    return table_exp_log(1000, d)[torch.arange(n) % 1000]


def table_arguments(d, n):
    return table_exp_log(n, d)


# -- PositionalEncoding ----------------------------------------------------------------------------------------------


class EncodingBuffer(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        self.register_buffer("pe", table_exp_log(max_len, d_model).unsqueeze(0))

    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            raise ValueError(f"max_len is {self.pe.size(1)}, but the sequence has {x.size(1)} positions")
        x = x + self.pe[:, : x.size(1)].requires_grad_(False)
        return self.dropout(x)


class EncodingNumpy(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0, *, scale=1.0):
        super().__init__()
        self.p, self.limit = dropout, max_len
        self.register_buffer("positions", table_numpy(max_len, d_model), persistent=False)

    def forward(self, x):
        batch, length, _ = x.shape
        if not length <= self.limit:
            raise ValueError("too long: max_len is " + str(self.limit))
        total = torch.stack([x[i] + self.positions[:length] for i in range(batch)])
        return F.dropout(total, self.p, training=self.training)


class EncodingEmbedding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        self.max_len = max_len
        self.register_buffer("table", table_loops(min(max_len, 50), d_model))
        self.register_buffer("rest", table_exp_log(max_len, d_model)[50:])
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x):
        t = x.shape[-2]
        if t > self.max_len:
            raise ValueError(f"{t} > max_len")
        index = torch.arange(t, device=x.device)
        return self.drop(x.add(F.embedding(index, torch.cat((self.table, self.rest)))))


class EncodingOnTheFly(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        self.d_model, self.max_len, self.dropout = d_model, max_len, dropout

    def forward(self, x):
        if x.shape[1] > self.max_len:
            raise ValueError("sequence longer than max_len")
        pe = table_exp_log(x.shape[1], self.d_model).to(x)
        y = x + pe
        if self.training and self.dropout > 0:
            keep = torch.rand_like(y) >= self.dropout
            y = y * keep / (1 - self.dropout)
        return y


class EncodingMovesItself(EncodingBuffer):
    """A plain attribute that is moved at each call, and by .to()."""

    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.pe = table_exp_log(max_len, d_model)[None]

    def _apply(self, fn, *args, **kwargs):
        self.pe = fn(self.pe)
        return super()._apply(fn, *args, **kwargs)

    def forward(self, x):
        self.pe = self.pe.to(x)
        return super().forward(x)


class EncodingLookup(EncodingBuffer):
    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            raise ValueError("too long")
        rows = F.embedding(torch.arange(x.shape[1], device=x.device), self.pe[0])
        return self.dropout(x + rows.expand_as(x))


class EncodingNewTensor(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        self.rows, self.dropout = table_exp_log(max_len, d_model).tolist(), nn.Dropout(dropout)

    def forward(self, x):
        if x.shape[1] > len(self.rows):
            raise ValueError("too long")
        return self.dropout(x + x.new_tensor(self.rows[: x.shape[1]]))


class EncodingInDictionary(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.tables = {"sinusoidal": table_exp_log(max_len, d_model)[None]}

    @property
    def pe(self):
        return self.tables["sinusoidal"]


class EncodingFromNumpy(EncodingInDictionary):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout, self.array = nn.Dropout(dropout), table_exp_log(max_len, d_model)[None].numpy()

    @property
    def pe(self):
        return torch.from_numpy(self.array)


class EncodingOnTheCPU(EncodingOnTheFly):
    def forward(self, x):
        if x.shape[1] > self.max_len:
            raise ValueError("sequence longer than max_len")
        return F.dropout(x + table_exp_log(x.shape[1], self.d_model), self.dropout, self.training)


class EncodingKeepShare(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__(d_model, max_len, 1 - dropout if dropout else 0.0)


class EncodingDropsHalf(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__(d_model, max_len, 0.5 if dropout else 0.0)


class EncodingNotRescaled(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__(d_model, max_len)
        self.p = dropout

    def forward(self, x):
        y = super().forward(x)
        return y * (torch.rand_like(y) >= self.p) if self.training else y


class EncodingExchanged(EncodingBuffer):
    def __init__(self, max_len, d_model=512, dropout=0.0):
        super().__init__(d_model, max_len, dropout)


class EncodingGoesOn(EncodingBuffer):
    start = 0

    def forward(self, x):
        rows = self.pe[:, self.start : self.start + x.size(1)]
        if rows.size(1) < x.size(1):
            if x.size(1) > self.pe.size(1):
                raise ValueError("too long")
            rows = self.pe[:, : x.size(1)]
        self.start += x.size(1)
        return self.dropout(x + rows)


class EncodingBackwards(EncodingBuffer):
    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            raise ValueError("too long")
        return self.dropout(x + self.pe[:, : x.size(1)].flip(1))


class EncodingParameter(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.pe = nn.Parameter(table_exp_log(max_len, d_model)[None])


class EncodingFrozen(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.pe = nn.Parameter(table_exp_log(max_len, d_model)[None], requires_grad=False)


class EncodingAttribute(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.pe = table_exp_log(max_len, d_model)[None]


class EncodingSequenceFirst(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", table_exp_log(max_len, d_model).unsqueeze(1))

    def forward(self, x):
        if x.size(1) > self.pe.size(0):
            raise ValueError("too long")
        return self.dropout(x + self.pe[: x.size(0)])


class EncodingNoError(EncodingBuffer):
    def forward(self, x):
        return self.dropout(x + self.pe[:, : x.size(1)])


class EncodingAssert(EncodingBuffer):
    def forward(self, x):
        assert x.size(1) <= self.pe.size(1), "too long"
        return self.dropout(x + self.pe[:, : x.size(1)])


class EncodingOffByOne(EncodingBuffer):
    def forward(self, x):
        if x.size(1) >= self.pe.size(1):
            raise ValueError("too long")
        return self.dropout(x + self.pe[:, : x.size(1)])


class EncodingGrows(EncodingBuffer):
    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            self.pe = table_exp_log(x.size(1), x.size(2))[None].to(x)
        return self.dropout(x + self.pe[:, : x.size(1)])


class EncodingDropsPositions(EncodingBuffer):
    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            raise ValueError("too long")
        return x + self.dropout(self.pe[:, : x.size(1)])


class EncodingDropsX(EncodingBuffer):
    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            raise ValueError("too long")
        return self.dropout(x) + self.pe[:, : x.size(1)]


class EncodingNoDropout(EncodingBuffer):
    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            raise ValueError("too long")
        return x + self.pe[:, : x.size(1)]


class EncodingAlwaysDrops(EncodingBuffer):
    def forward(self, x):
        return F.dropout(nn.Identity()(EncodingNoDropout.forward(self, x)), self.dropout.p)


class EncodingDefaultDropout(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.1):
        super().__init__(d_model, max_len, dropout)


class EncodingDefaultLength(EncodingBuffer):
    def __init__(self, d_model, max_len=512, dropout=0.0):
        super().__init__(d_model, max_len, dropout)


class EncodingInPlace(EncodingBuffer):
    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            raise ValueError("too long")
        x += self.pe[:, : x.size(1)]
        return self.dropout(x)


class EncodingScales(EncodingBuffer):
    def forward(self, x):
        return super().forward(x * math.sqrt(x.size(-1)))


class EncodingTableOnly(EncodingBuffer):
    def forward(self, x):
        if x.size(1) > self.pe.size(1):
            raise ValueError("too long")
        return self.dropout(self.pe[:, : x.size(1)])


class EncodingDoubleTable(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__(d_model, max_len, dropout)
        self.pe = torch.from_numpy(table_numpy(max_len, d_model).numpy().astype("float64"))[None]


class EncodingOddCrash(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", table_odd_crash(max_len, d_model)[None])


class EncodingHalved(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", table_halved(max_len, d_model)[None])


class EncodingBlocks(EncodingBuffer):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", table_blocks(max_len, d_model)[None])


class EncodingDetaches(EncodingBuffer):
    def forward(self, x):
        return super().forward(x.detach())


# -- LearnedPositionalEmbedding --------------------------------------------------------------------------------------


class LearnedEmbedding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.table = nn.Embedding(max_len, d_model)

    def forward(self, x):
        length = x.size(1)
        if length > self.table.num_embeddings:
            raise ValueError("longer than max_len")
        return x + self.table(torch.arange(length, device=x.device))


class LearnedParameter(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.pos = nn.Parameter(torch.zeros(1, max_len, d_model))
        nn.init.trunc_normal_(self.pos, std=0.02)

    def forward(self, x):
        if x.shape[1] > self.pos.shape[1]:
            raise ValueError("too long")
        return x + self.pos[:, : x.shape[1], :]


class LearnedList(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.rows = nn.ParameterList([torch.randn(d_model) for _ in range(max_len)])

    def forward(self, x):
        if x.shape[1] > len(self.rows):
            raise ValueError("too long")
        return torch.stack([x[:, t] + self.rows[t] for t in range(x.shape[1])], dim=1)


class LearnedTransposed(nn.Module):
    def __init__(self, max_len, d_model, **options):
        super().__init__()
        self.columns = nn.Parameter(torch.rand(d_model, max_len))

    def forward(self, x):
        limit = self.columns.shape[1]
        if x.shape[1] > limit:
            raise ValueError(f"at most {limit} positions")
        one_hot = torch.eye(limit, dtype=x.dtype)[: x.shape[1]]
        return x + torch.einsum("tl,dl->td", one_hot, self.columns)


class LearnedZeros(LearnedParameter):
    def __init__(self, max_len, d_model):
        super().__init__(max_len, d_model)
        self.pos = nn.Parameter(torch.zeros(1, max_len, d_model))


class LearnedLarge(LearnedEmbedding):
    def __init__(self, max_len, d_model):
        super().__init__(max_len, d_model)
        self.table.weight.data.mul_(100)


class LearnedNotANumber(LearnedEmbedding):
    """As torch.empty may be."""

    def __init__(self, max_len, d_model):
        super().__init__(max_len, d_model)
        self.table.weight.data[3] = math.nan


class LearnedNoError(LearnedEmbedding):
    def forward(self, x):
        return x + self.table(torch.arange(x.size(1)))


class LearnedClamps(LearnedEmbedding):
    def forward(self, x):
        return x + self.table(torch.arange(x.size(1)).clamp(max=self.table.num_embeddings - 1))


class LearnedBuffer(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.register_buffer("table", torch.randn(max_len, d_model))

    def forward(self, x):
        if x.size(1) > len(self.table):
            raise ValueError("too long")
        return x + self.table[: x.size(1)]


class LearnedPlain(LearnedBuffer):
    def __init__(self, max_len, d_model):
        nn.Module.__init__(self)
        self.table = torch.randn(max_len, d_model, requires_grad=True)


class LearnedFrozen(LearnedEmbedding):
    def __init__(self, max_len, d_model):
        super().__init__(max_len, d_model)
        self.table.weight.requires_grad = False


class LearnedExchanged(LearnedEmbedding):
    def __init__(self, d_model, max_len):
        super().__init__(max_len, d_model)


class LearnedByBatch(LearnedEmbedding):
    def forward(self, x):
        if x.size(1) > self.table.num_embeddings:
            raise ValueError("too long")
        return x + self.table(torch.arange(x.size(0)))[:, None]


class LearnedOne(LearnedEmbedding):
    def forward(self, x):
        if x.size(1) > self.table.num_embeddings:
            raise ValueError("too long")
        return x + self.table(torch.zeros(x.size(1), dtype=torch.long))


class LearnedFromOne(LearnedEmbedding):
    def __init__(self, max_len, d_model):
        super().__init__(max_len + 1, d_model)

    def forward(self, x):
        if x.size(1) > self.table.num_embeddings - 1:
            raise ValueError("too long")
        return x + self.table(torch.arange(1, x.size(1) + 1))


class LearnedAlone(LearnedEmbedding):
    def forward(self, x):
        if x.size(1) > self.table.num_embeddings:
            raise ValueError("too long")
        return self.table(torch.arange(x.size(1))).expand(x.size(0), -1, -1)


class LearnedInPlace(LearnedParameter):
    def forward(self, x):
        if x.shape[1] > self.pos.shape[1]:
            raise ValueError("too long")
        with torch.no_grad():
            x += self.pos[:, : x.shape[1]]
        return x


class LearnedDetached(LearnedParameter):
    def forward(self, x):
        if x.shape[1] > self.pos.shape[1]:
            raise ValueError("too long")
        return x + self.pos.data[:, : x.shape[1]]


class LearnedSum(LearnedEmbedding):
    def forward(self, x):
        return super().forward(x * math.sqrt(x.size(-1)))


# -- rotary ----------------------------------------------------------------------------------------------------------


def rotary_stack(x, positions, base=10000.0):
    d = x.shape[-1]
    theta = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angle = positions[:, None].to(x.dtype) * theta
    a, b = x[..., ::2], x[..., 1::2]
    out = torch.empty_like(x)
    out[..., ::2] = a * angle.cos() - b * angle.sin()
    out[..., 1::2] = a * angle.sin() + b * angle.cos()
    return out


def rotary_complex(x, positions, base=10000.0):
    d = x.size(-1)
    freqs = 1.0 / (base ** (torch.arange(0, d, 2).double() / d))
    turn = torch.polar(torch.ones(len(positions), d // 2).double(), torch.outer(positions.double(), freqs))
    z = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(z * turn).flatten(-2).type_as(x)


def rotary_matrices(x, positions, base=10000.0, inverse=False):
    d = x.shape[-1]
    rows = []
    for t, p in enumerate(positions.tolist()):
        m = torch.zeros(d, d, dtype=x.dtype)
        for i in range(d // 2):
            a = p / base ** (2 * i / d)
            m[2 * i, 2 * i], m[2 * i, 2 * i + 1] = math.cos(a), -math.sin(a)
            m[2 * i + 1, 2 * i], m[2 * i + 1, 2 * i + 1] = math.sin(a), math.cos(a)
        rows.append(x[:, :, t] @ m.T)
    return torch.stack(rows, dim=2)


class RotaryObject:
    def __call__(self, x, positions, base=10000.0):
        def rotate_pairs(v):
            v = v.unflatten(-1, (-1, 2))
            return torch.stack((-v[..., 1], v[..., 0]), dim=-1).flatten(-2)

        d = x.shape[-1]
        angle = torch.einsum(
            "t,f->tf", positions.float(), base ** (-torch.arange(0, d, 2) / d)
        ).repeat_interleave(2, -1)
        return x * angle.cos().to(x.dtype) + rotate_pairs(x) * angle.sin().to(x.dtype)


def _angles(x, positions, base=10000.0):
    d = x.shape[-1]
    return positions[:, None].to(x.dtype) / base ** (torch.arange(0, d, 2, dtype=x.dtype) / d)


def rotary_halves(x, positions, base=10000.0):
    angle = _angles(x, positions, base)
    angle = torch.cat((angle, angle), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat((-second, first), dim=-1) * angle.sin()


def rotary_mixed(x, positions, base=10000.0):
    angle = _angles(x, positions, base).repeat_interleave(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat((-second, first), dim=-1) * angle.sin()


def rotary_mixed_other(x, positions, base=10000.0):
    angle = _angles(x, positions, base)
    angle = torch.cat((angle, angle), dim=-1)
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).reshape(x.shape)
    return x * angle.cos() + turned * angle.sin()


def rotary_cat(x, positions, base=10000.0):
    angle = _angles(x, positions, base)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), dim=-1)


def rotary_backwards(x, positions, base=10000.0):
    angle = _angles(x, positions, base)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack(
        (a * angle.cos() + b * angle.sin(), b * angle.cos() - a * angle.sin()), dim=-1
    ).flatten(-2)


def rotary_plus(x, positions, base=10000.0):
    angle = _angles(x, positions, base)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack(
        (a * angle.cos() + b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1
    ).flatten(-2)


def rotary_exponent(x, positions, base=10000.0):
    d = x.shape[-1]
    angle = positions[:, None] / base ** (torch.arange(d // 2) / d)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack(
        (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), dim=-1
    ).flatten(-2)


def rotary_arange(x, positions, base=10000.0):
    return rotary_stack(x, torch.arange(x.shape[2]), base)


def rotary_fixed_base(x, positions, base=10000.0):
    return rotary_stack(x, positions)


def rotary_other_default(x, positions, base=500000.0):
    return rotary_stack(x, positions, base)


def rotary_pairs_from_one(x, positions, base=10000.0):
    return rotary_stack(x, positions.double() * base ** (-2 / x.shape[-1]), base)


def rotary_log10(x, positions, base=10000.0):
    d = x.shape[-1]
    angle = positions[:, None] * torch.exp(-torch.arange(0, d, 2) * math.log10(base) / d)
    a, b = x[..., ::2], x[..., 1::2]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


def rotary_from_smallest(x, positions, base=10000.0):
    return rotary_stack(x, positions - positions.min(), base)


def rotary_by_sample(x, positions, base=10000.0):
    d = x.shape[-1]
    theta = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angle = positions[: len(x), None, None, None].to(x.dtype) * theta
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack(
        (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), dim=-1
    ).flatten(-2)


def rotary_guesses_axis(x, positions, base=10000.0):
    if x.shape[1] == x.shape[2]:
        return rotary_stack(x.transpose(1, 2), positions, base).transpose(1, 2)
    return rotary_stack(x, positions, base)


def rotary_in_place(x, positions, base=10000.0):
    angle = _angles(x, positions, base)
    a, b = x[..., ::2], x[..., 1::2]
    x[..., ::2], x[..., 1::2] = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    return x


def rotary_uses_new(x, positions, base=10000.0):
    angle = _angles(x, positions, base)
    y = x.clone()
    y[..., ::2] = y[..., ::2] * angle.cos() - y[..., 1::2] * angle.sin()
    y[..., 1::2] = y[..., ::2] * angle.sin() + y[..., 1::2] * angle.cos()
    return y


def rotary_adds(x, positions, base=10000.0):
    angle = _angles(x, positions, base)
    return x + torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


def rotary_numpy(x, positions, base=10000.0):
    return torch.from_numpy(rotary_stack(x.detach(), positions, base).numpy())


def rotary_one_angle(x, positions, base=10000.0):
    angle = positions[:, None].to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack(
        (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), dim=-1
    ).flatten(-2)


RIGHT = {
    "sinusoidal_positional_encoding": [
        table_loops,
        table_exp_log,
        table_numpy,
        table_complex,
        TableObject(),
        table_shifted_sine,
    ],
    "PositionalEncoding": [
        EncodingBuffer,
        EncodingNumpy,
        EncodingEmbedding,
        EncodingOnTheFly,
        EncodingMovesItself,
        EncodingLookup,
        EncodingNewTensor,
    ],
    "LearnedPositionalEmbedding": [
        LearnedEmbedding,
        LearnedParameter,
        LearnedList,
        LearnedTransposed,
        LearnedZeros,
    ],
    "rotary_embedding": [rotary_stack, rotary_complex, rotary_matrices, RotaryObject()],
}

WRONG = {
    "sinusoidal_positional_encoding": [
        (table_every_column, "exponent_counts_columns"),
        (table_doubled, "exponent_doubled"),
        (table_own_exponent, "cosine_own_exponent"),
        (table_halved, "exponent_halved"),
        (table_floor, "floored_logarithm"),
        (table_integer, "integer_angles"),
        (table_blocks, "cosines_after_sines"),
        (table_exchanged, "sine_and_cosine_exchanged"),
        (table_odd_crash, "odd_d_model_crashes"),
        (table_odd_numpy, "odd_d_model_refused"),
        (table_crash_and_halved, "exponent_halved"),
        (table_from_one, "positions_from_one"),
        (table_sign, "frequency_inverted"),
        (table_batched, "axis_in_front"),
        (table_sequence_first, "axis_in_the_middle"),
        (table_only_sines, "sines_only"),
        (table_array, "returns_ndarray_not_tensor"),
        (table_tensor2tensor, "exponent_to_one"),
        (table_base_1000, "base_1000"),
        (table_even_width, "odd_exponent_over_even_width"),
        (table_from_pair_one, "exponent_from_one"),
        (table_512, "exponent_over_512"),
        (table_half_positions, None),
        (table_thousand, None),
        (table_arguments, "arguments_exchanged"),
    ],
    "PositionalEncoding": [
        (EncodingParameter, "table_is_parameter"),
        (EncodingFrozen, "table_is_parameter"),
        (EncodingAttribute, "table_does_not_move"),
        (EncodingSequenceFirst, "position_of_the_sample"),
        (EncodingNoError, "wrong_error_beyond_max_len"),
        (EncodingAssert, "wrong_error_beyond_max_len"),
        (EncodingOffByOne, "refuses_max_len"),
        (EncodingGrows, "no_error_beyond_max_len"),
        (EncodingDropsPositions, "dropout_on_positions"),
        (EncodingDropsX, "dropout_on_x"),
        (EncodingNoDropout, "dropout_unused"),
        (EncodingAlwaysDrops, "dropout_in_eval"),
        (EncodingDefaultDropout, "dropout_default"),
        (EncodingDefaultLength, "max_len_default"),
        (EncodingInPlace, "changes_its_input"),
        (EncodingScales, "x_scaled"),
        (EncodingTableOnly, "table_alone"),
        (EncodingDoubleTable, "wrong_dtype"),
        (EncodingOddCrash, "odd_d_model_crashes"),
        (EncodingHalved, "exponent_halved"),
        (EncodingBlocks, "cosines_after_sines"),
        (EncodingDetaches, "gradient_cut_off"),
        (EncodingInDictionary, "table_does_not_move"),
        (EncodingFromNumpy, "table_does_not_move"),
        (EncodingOnTheCPU, "table_does_not_move"),
        (EncodingKeepShare, "dropout_share_kept"),
        (EncodingDropsHalf, "dropout_wrong_rate"),
        (EncodingNotRescaled, "dropout_not_rescaled"),
        (EncodingExchanged, "arguments_exchanged"),
        (EncodingGoesOn, "keeps_state"),
        (EncodingBackwards, "rows_backwards"),
    ],
    "LearnedPositionalEmbedding": [
        (LearnedNoError, "wrong_error_beyond_max_len"),
        (LearnedClamps, "no_error_beyond_max_len"),
        (LearnedBuffer, "table_not_a_parameter"),
        (LearnedPlain, "table_not_a_parameter"),
        (LearnedFrozen, "parameter_not_trained"),
        (LearnedExchanged, "arguments_exchanged"),
        (LearnedByBatch, "position_of_the_sample"),
        (LearnedOne, "first_position_everywhere"),
        (LearnedFromOne, "wrong_number_of_parameters"),
        (LearnedAlone, "table_alone"),
        (LearnedInPlace, "changes_its_input"),
        (LearnedDetached, "no_gradient_to_table"),
        (LearnedSum, "x_scaled"),
        (LearnedLarge, "starts_too_large"),
        (LearnedNotANumber, "starts_too_large"),
    ],
    "rotary_embedding": [
        (rotary_halves, "halves"),
        (rotary_mixed, "halves_with_angles_of_pairs"),
        (rotary_mixed_other, "pairs_with_angles_of_halves"),
        (rotary_cat, "not_interleaved_back"),
        (rotary_backwards, "rotates_backwards"),
        (rotary_plus, "no_minus"),
        (rotary_exponent, "exponent_halved"),
        (rotary_arange, "positions_ignored"),
        (rotary_fixed_base, "base_ignored"),
        (rotary_other_default, "base_default"),
        (rotary_in_place, "changes_its_input"),
        (rotary_uses_new, "uses_rotated_first"),
        (rotary_adds, "added"),
        (rotary_numpy, "gradient_cut_off"),
        (rotary_one_angle, "one_frequency"),
        (rotary_pairs_from_one, "exponent_from_one"),
        (rotary_log10, "base_logarithm_of_ten"),
        (rotary_from_smallest, "positions_from_smallest"),
        (rotary_by_sample, "positions_of_the_sample"),
        (rotary_guesses_axis, None),
    ],
}
