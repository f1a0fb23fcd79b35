"""Exercises of 00_start_here."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.exercises.attention import unchanged
from txcourse.solutions import start_here as solutions

# -- softmax ---------------------------------------------------------------------------------------------------------

_SOFTMAX = (
    Mistake("overflows", "shift", "exp is taken of the inputs themselves: it overflows for large ones, and for very negative ones the sum becomes 0. Subtract the largest value of the slice first."),
    Mistake("overflows_or_zero", "shift", "exp is taken of the inputs themselves: it overflows for large ones, and very negative slices become zeros. Subtract the largest value of the slice first."),
    Mistake("overflows_to_zero", "shift", "exp is taken of the inputs themselves; where it overflows, the result is then set to 0. Subtract the largest value of the slice first."),
    Mistake("subtracts_minimum", "shift", "The smallest value of the slice is subtracted, so exp still overflows; subtract the largest."),
    Mistake("subtracts_mean", "shift", "The mean of the slice is subtracted, so exp can still overflow; subtract the largest value."),
    Mistake("maximum_of_everything", "shift", "The maximum of the whole tensor is subtracted: a slice far below it becomes 0 / 0. Take the maximum of each slice."),
    Mistake("maximum_of_everything_zeros", "shift", "The maximum of the whole tensor is subtracted: a slice far below it becomes zeros. Take the maximum of each slice."),
    Mistake("maximum_over_last_axis", "shift", "The maximum is taken over the last axis whatever `dim` is; take it along `dim`, as the sum."),
    Mistake("divides_by_maximum", "shift", "The inputs are divided by their maximum; subtract it instead, which does not change the result."),
    Mistake("maximum_of_magnitudes", "shift", "The largest magnitude is subtracted: a slice of very negative values still becomes 0 / 0. Subtract the largest value."),
    Mistake("maximum_added", "shift", "The maximum is added where it should be subtracted, so exp overflows all the sooner."),
    Mistake("subtracted_the_wrong_way", "shift", "The exponent is the maximum minus x: the largest input gets the smallest weight. It is x minus the maximum."),
    Mistake("nan_for_all_minus_infinity", "full", "A slice that is -inf everywhere gives NaN; it should give zeros."),
    Mistake("uniform_for_all_minus_infinity", "full", "A slice that is -inf everywhere gives equal weights; it should give zeros."),
    Mistake("ones_for_all_minus_infinity", "full", "A slice that is -inf everywhere gives ones; it should give zeros."),
    Mistake("zeros_for_any_minus_infinity", "full", "A slice with one -inf is all zeros; only a slice of nothing but -inf should be."),
    Mistake("dim_ignored", "dim", "`dim` is not used: the last axis is always taken."),
    Mistake("always_first_axis", "dim", "`dim` is not used: axis 0 is always taken."),
    Mistake("always_second_axis", "dim", "`dim` is not used: axis 1 is always taken."),
    Mistake("default_first_axis", "dim", "Without `dim` axis 0 is taken; the default is -1, the last axis."),
    Mistake("default_second_axis", "dim", "Without `dim` axis 1 is taken; the default is -1, the last axis."),
    Mistake("sum_of_everything", "dim", "The division is by the sum of the whole tensor; each slice along `dim` has its own sum."),
    Mistake("sum_over_last_axis", "dim", "The division is by the sum over the last axis whatever `dim` is."),
    Mistake("sum_not_kept", "dim", "The sum is taken without keepdim=True, so it lines up with another axis (or with none, which is an error)."),
    Mistake("maximum_not_kept", "dim", "The maximum is taken without keepdim=True, so it lines up with another axis (or with none, which is an error)."),
    Mistake("axes_not_kept", "dim", "Maximum and sum are taken without keepdim=True, so they line up with another axis (or with none, which is an error)."),
    Mistake("axes_put_back_last", "dim", "Maximum and sum are put back as a last axis, unsqueeze(-1), whatever `dim` is; keepdim=True keeps them in place."),
    Mistake("not_divided", "function", "exp(x) is not divided by its sum."),
    Mistake("no_exp", "function", "The inputs themselves are divided by their sum; exp is missing."),
    Mistake("negated", "function", "exp(-x) is used: the largest input gets the smallest weight."),
    Mistake("logarithm", "function", "The result is the logarithm of the softmax."),
    Mistake("base_two", "function", "Powers of 2 are used where powers of e are meant."),
    Mistake("divided_by_length", "function", "exp(x) is divided by its Euclidean length (the root of the sum of squares); divide by its sum."),
    Mistake("divided_by_count", "function", "exp(x) is divided by the number of entries (its mean is missing a sum); divide by its sum."),
    Mistake("sigmoid", "function", "This is the sigmoid of each entry on its own; the entries of a slice should share the sum 1."),
    Mistake("hard_maximum", "function", "The largest entry gets everything; that is the argmax, not the softmax."),
    Mistake("twice", "function", "The softmax is applied twice."),
)  # fmt: skip


def _softmax_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def softmax(x: Tensor, dim: int | None = None) -> Tensor:
        default = (
            0 if "default_first_axis" in on else 1 if "default_second_axis" in on and x.dim() > 1 else -1
        )
        dim = default if dim is None else dim
        if "dim_ignored" in on:
            dim = -1
        elif "always_first_axis" in on:
            dim = 0
        elif "always_second_axis" in on:
            dim = min(1, x.dim() - 1)
        full = (x == -math.inf).all(dim, keepdim=True)
        x = -x.masked_fill(full, 0.0) if "negated" in on else x.masked_fill(full, 0.0)
        top = x.amax(dim, keepdim=True)
        shifts = {
            "overflows": lambda: torch.zeros_like(top),
            "overflows_or_zero": lambda: torch.zeros_like(top),
            "overflows_to_zero": lambda: torch.zeros_like(top),
            "subtracts_minimum": lambda: x.masked_fill(x == -math.inf, math.inf).amin(dim, keepdim=True),
            "subtracts_mean": lambda: x.mean(dim, keepdim=True),
            "maximum_of_everything": x.amax,
            "maximum_of_everything_zeros": x.amax,
            "maximum_over_last_axis": lambda: x.amax(-1, keepdim=True),
            "maximum_of_magnitudes": lambda: x.masked_fill(x == -math.inf, 0.0).abs().amax(dim, keepdim=True),
            "maximum_added": lambda: -top,
            "divides_by_maximum": lambda: torch.zeros_like(top),
        }
        if "divides_by_maximum" in on:
            x = x / top
        shift = next((s() for name, s in shifts.items() if name in on), top)
        if {"maximum_not_kept", "axes_not_kept", "axes_put_back_last"} & on and shift is top:
            shift = top.squeeze(dim)
            shift = shift.unsqueeze(-1) if "axes_put_back_last" in on else shift
        shifted = shift - x if "subtracted_the_wrong_way" in on else x - shift
        exp = 2.0**shifted if "base_two" in on else shifted.exp()
        if "sum_of_everything" in on:
            total = exp.masked_fill(full, 0.0).sum()
        elif "sum_over_last_axis" in on:
            total = exp.sum(-1, keepdim=True)
        else:
            total = exp.sum(dim, keepdim=True)
        if {"sum_not_kept", "axes_not_kept", "axes_put_back_last"} & on:
            total = total.squeeze(dim)
            total = total.unsqueeze(-1) if "axes_put_back_last" in on else total
        if "not_divided" in on:
            result = exp
        elif "no_exp" in on:
            result = x / x.sum(dim, keepdim=True)
        elif "divided_by_length" in on:
            result = exp / (exp**2).sum(dim, keepdim=True).sqrt()
        elif "divided_by_count" in on:
            result = exp / x.shape[dim]
        elif "sigmoid" in on:
            result = x.sigmoid()
        elif "hard_maximum" in on:
            result = (x == top).to(x.dtype)
        elif "twice" in on:
            again = (exp / total).exp()
            result = again / again.sum(dim, keepdim=True)
        elif "logarithm" in on:
            result = shifted - total.log()
        else:
            result = exp / total
        if "overflows_or_zero" in on:
            result = result.masked_fill(total == 0, 0.0)
        if {"overflows_to_zero", "maximum_of_everything_zeros"} & on:
            result = result.nan_to_num(0.0)
        fills = {"nan_for_all_minus_infinity": math.nan, "ones_for_all_minus_infinity": 1.0}
        fill = next((v for name, v in fills.items() if name in on), -math.inf if "logarithm" in on else 0.0)
        if "uniform_for_all_minus_infinity" in on:
            fill = 1 / x.shape[dim]
        if "zeros_for_any_minus_infinity" in on:
            full = full | (x == -math.inf).any(dim, keepdim=True)
        return result.masked_fill(full, fill)

    return softmax


def _x(seed: int, *shape: int, scale: float = 1.5, dtype: torch.dtype = torch.float32) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _some_minus_infinity(seed: int, *shape: int) -> Tensor:
    """About half of the entries are -inf, but in no slice along any axis all of them."""
    x = _x(seed, *shape)
    hidden = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    index = sum(torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij"))
    return x.masked_fill(hidden & (index % min(shape) != 0), -math.inf)


def _far_apart(seed: int) -> Tensor:
    """Slices along the last axis, and along axis 1, far above and far below each other."""
    offsets = torch.tensor([0.0, 1000.0, -1000.0, 3000.0, -3000.0], dtype=torch.float64)
    return _x(seed, 2, 5, 4, dtype=torch.float64) + offsets[:, None]


def _wide(seed: int) -> Tensor:
    """Values between -800 and 800 in each slice along the last axis, the largest ones alike."""
    g = torch.Generator().manual_seed(seed)
    steps = torch.tensor([-800.0, -200.0, 0.0, 200.0, 799.0, 800.0], dtype=torch.float64)
    return torch.stack([steps[torch.randperm(6, generator=g)] for _ in range(3)]) + _x(seed, 3, 6)


def _full_slice(seed: int) -> Tensor:
    x = _some_minus_infinity(seed, 3, 4)
    x[1] = -math.inf
    return x


def _softmax_probes(seed: int) -> list[Probe]:
    return [
        Probe((_x(seed, 2, 3, 4),)),
        Probe((_x(seed + 1, 2, 3, 4), 1)),
        Probe((_x(seed + 2, 2, 3, 4), 0)),
        Probe((_x(seed + 3, 4, 4), 0)),
        Probe((_x(seed + 4, 4, 4),)),
        Probe((_far_apart(seed),)),
        Probe((_far_apart(seed).transpose(1, 2), 1)),
        Probe((1000 + _x(seed, 3, 4, dtype=torch.float64),)),
        Probe((400 + _x(seed, 3, 4, dtype=torch.float64),)),
        Probe((_wide(seed),)),
        Probe((_full_slice(seed),)),
        Probe((_some_minus_infinity(seed, 3, 4),)),
    ]


def _softmax_values(c: Context) -> None:
    x = c.randn(6, 4, scale=1.5)
    got, want = c.subject.call(x), c.reference(x)
    if isinstance(got, Tensor) and got.shape == want.shape:
        share = (got / want).double()  # Σ / (Σ + eps) in each row, when eps is added to the sum Σ
        total = (x - x.amax(-1, keepdim=True)).exp().sum(-1).double()
        eps = total * (1 / share[:, 0] - 1)
        if torch.allclose(share, share[:, :1].expand_as(share), rtol=1e-4) and float(eps.min()) > 1e-4:
            if float(eps.max() - eps.min()) < 0.01 * float(eps.min()):
                raise Wrong(
                    f"The rows should sum to 1; {float(eps[0]):.2g} seems to be added to the sum.",
                    "eps_too_large",
                )
    c.same(c.randn(2, 3, 4, scale=1.5), what="the result of softmax(x)")
    c.same(c.randn(5), what="the result of softmax(x) of a vector")


def _softmax_dim(c: Context) -> None:
    x = c.randn(2, 3, 4, scale=1.5)
    for dim in (0, 1, 2, -2):
        c.same(x, dim, what=f"the result of softmax(x, dim={dim})")
    square = c.randn(4, 4, scale=1.5)
    for dim in (0, 1):
        c.same(square, dim, what=f"the result of softmax(x, dim={dim}) of a square matrix")
    c.expect(c.subject.call(x, dim=1), c.reference(x, dim=1), "the result of softmax(x, dim=1)")


def _softmax_large(c: Context) -> None:
    got = c.subject.call(torch.tensor([3000.0, 2000.0, 1000.0]))
    if isinstance(got, Tensor) and got.shape == (3,) and bool(torch.allclose(got, torch.full((3,), 1 / 3))):
        raise Wrong(
            "3000, 2000 and 1000 get equal weights: large inputs are cut off. Subtract the maximum instead.",
            "clamped",
        )
    c.same(1000 + c.randn(3, 4), what="the result of softmax(x) of inputs near 1000", rtol=1e-4)
    c.same(_wide(c.seed), what="the result of softmax(x) of inputs between -800 and 800")
    c.same(torch.tensor([1e30, -1e30, 0.0]), what="the result of softmax([1e30, -1e30, 0])")


def _softmax_negative(c: Context) -> None:
    c.same(c.randn(3, 4) - 1000, what="the result of softmax(x) of inputs near -1000", rtol=1e-4)


def _softmax_apart(c: Context) -> None:
    x = _far_apart(c.seed)
    c.same(x, what="the result of softmax(x) of rows near 0, ±1000 and ±3000")
    c.same(
        x.transpose(1, 2),
        1,
        what="the result of softmax(x, dim=1) of columns near 0, ±1000 and ±3000",
    )


def _softmax_some(c: Context) -> None:
    c.same(_some_minus_infinity(c.seed, 4, 5), what="the result of softmax(x) of inputs with some -inf")


def _softmax_full(c: Context) -> None:
    x = _full_slice(c.seed)
    for what, args in (
        ("rows", (x,)),
        ("columns", (x.T.contiguous(), 0)),
        ("a single", (torch.full((3,), -math.inf),)),
    ):
        got = c.subject.call(*args)
        row = got[1] if what == "rows" else got[:, 1] if what == "columns" else got
        if not bool((row == 0).all()):
            text = "NaN" if row.isnan().any() else f"values such as {float(row.flatten()[0]):.3g}"
            raise Wrong(f"A slice that is -inf everywhere should give zeros; yours gives {text}.")
        c.expect(got, c.reference(*args), "the result of softmax(x) with one slice of only -inf")


def _softmax_gradient(c: Context) -> None:
    x = c.randn(2, 3, 4, dtype=torch.float64)
    for dim in (-1, 1):
        c.same_gradients(x, dim, wrt={"x": 0}, rtol=1e-5, atol=1e-5)


def _softmax_dtype(c: Context) -> None:
    x = c.randn(3, 4, dtype=torch.float64)
    got = c.subject.call(x)
    if isinstance(got, Tensor) and got.dtype != torch.float64:
        raise Wrong(f"For a float64 input the result should be float64; yours is {got.dtype}.", "wrong_dtype")


def _softmax_kept(c: Context) -> None:
    unchanged(c, c.randn(3, 4))
    turned = c.randn(4, 3).T
    c.same(turned, what="the result of softmax(x) of a tensor that is not contiguous")
    c.same(turned, 0, what="the result of softmax(x, dim=0) of a tensor that is not contiguous")


# -- the linear layer ------------------------------------------------------------------------------------------------

_LINEAR = (
    Mistake("bias_not_added", "bias", "`bias` exists but is not added."),
    Mistake("bias_subtracted", "bias", "`bias` is subtracted; it should be added."),
    Mistake("bias_twice", "bias", "`bias` is added twice."),
    Mistake("bias_inside_product", "bias", "The bias is multiplied where it should be added."),
    Mistake("scaled", "product", "The product is divided by √d_in; a linear layer does not scale."),
    Mistake("scaled_by_d_in", "product", "The product is divided by d_in (a mean where a sum is meant)."),
    Mistake("elementwise", "product", "Each output is the sum of a row of `weight` times the mean of x: this is no matrix product."),
    Mistake("negated", "product", "The product has the wrong sign."),
    Mistake("relu", "after", "There is a ReLU on the result; a linear layer has none."),
    Mistake("tanh", "after", "There is a tanh on the result; a linear layer has none."),
    Mistake("sigmoid", "after", "There is a sigmoid on the result; a linear layer has none."),
    Mistake("softmax", "after", "There is a softmax on the result; a linear layer has none."),
    Mistake("flattened", "shape", "The axes before the last one are flattened into one; the result should be (..., d_out)."),
    Mistake("batch_flattened", "shape", "All axes after the first are summed or flattened; the layer acts on the last axis alone."),
    Mistake("squeezed", "shape", "Axes of size 1 are removed from the result."),
)  # fmt: skip


def _linear_variant(on: frozenset[str]) -> Callable[..., nn.Module]:
    class Linear(nn.Module):
        def __init__(self, d_in: int, d_out: int, bias: bool = True) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(d_out, d_in))
            self.bias = nn.Parameter(torch.randn(d_out)) if bias else None

        def forward(self, x: Tensor) -> Tensor:
            d_in = self.weight.shape[1]
            y = x @ self.weight.T
            if "scaled" in on:
                y = y / math.sqrt(d_in)
            elif "scaled_by_d_in" in on:
                y = y / d_in
            elif "elementwise" in on:
                y = x.mean(-1, keepdim=True) * self.weight.sum(1)
            elif "negated" in on:
                y = -y
            if self.bias is not None and "bias_not_added" not in on:
                if "bias_inside_product" in on:
                    y = y * self.bias
                else:
                    y = y + (-1 if "bias_subtracted" in on else 2 if "bias_twice" in on else 1) * self.bias
            after: dict[str, Callable[[Tensor], Tensor]] = {
                "relu": torch.relu,
                "tanh": torch.tanh,
                "sigmoid": torch.sigmoid,
                "softmax": lambda t: t.softmax(-1),
            }
            y = next((f for name, f in after.items() if name in on), lambda t: t)(y)
            if "flattened" in on:
                return y.reshape(-1, y.shape[-1])
            if "batch_flattened" in on and y.dim() > 2:
                return y.flatten(1, -2).sum(1)
            return y.squeeze() if "squeezed" in on else y

    return Linear


_SIZES = {"d_in": 5, "d_out": 7}


def _linear_probes(seed: int) -> list[Probe]:
    shapes = ((3, 5), (2, 3, 5), (1, 3, 1, 5))
    return [Probe((_x(seed + i, *shape, dtype=torch.float64),)) for i, shape in enumerate(shapes)]


def _parameter(c: Context, name: str, shape: tuple[int, ...], **changes: Any) -> None:
    module = c.build(**changes)
    found = dict(module.parameters())
    if name in found:
        if found[name] != shape:
            turned = "weight_transposed" if found[name] == shape[::-1] else "wrong_parameter_shape"
            raise Wrong(f"`{name}` should have shape {shape}; yours has {found[name]}.", turned)
        if not module.attribute(name).requires_grad:
            raise Wrong(f"`{name}` should be trained: it needs requires_grad=True.", "parameter_not_trained")
    elif _has(module, name):
        raise Wrong(
            f"`{name}` is not seen by PyTorch as a parameter, so it is never trained: use nn.Parameter.",
            "parameters_not_registered",
        )
    elif name == "bias" and "bias" in dict(c.build(bias=True).parameters()):
        raise Wrong(
            "Without the argument `bias` there should be one: its default is True.", "bias_off_by_default"
        )
    else:
        known = ", ".join(found) or "none"
        raise Wrong(
            f"There should be a parameter named `{name}`; yours are: {known}.", "parameter_names_differ"
        )


def _has(module: Any, name: str) -> bool:
    try:
        return module.attribute(name) is not None
    except Exception:
        return False


def _linear_parameters(c: Context) -> None:
    _parameter(c, "weight", (7, 5))
    _parameter(c, "bias", (7,))
    if extra := [n for n, _ in c.build().parameters() if n not in ("weight", "bias")]:
        raise Wrong(
            f"There should be no parameters but `weight` and `bias`; yours has `{extra[0]}`.",
            "extra_parameters",
        )


def _linear_no_bias(c: Context) -> None:
    _parameter(c, "weight", (7, 5), bias=False)
    module = c.build(bias=False)
    if "bias" in dict(module.parameters()):
        raise Wrong("With bias=False there should be no parameter `bias`.", "bias_argument_ignored")
    if module.size() != 35:
        raise Wrong(f"With bias=False the layer has d_out · d_in = 35 numbers; yours has {module.size()}.")
    _product(c, module.double(), 5)


def _product(c: Context, module: Any, d_in: int) -> None:
    """The output is x Wᵀ + b, with the candidate's own weight and bias."""
    module.write(c.randn(module.size(), dtype=torch.float64))
    x = c.randn(3, d_in, dtype=torch.float64)
    weight = module.attribute("weight").detach()
    bias = module.attribute("bias").detach() if _has(module, "bias") else torch.zeros(())
    got = module.call(x)
    if weight.shape == (d_in, d_in) and isinstance(got, Tensor) and got.shape == x.shape:
        if torch.allclose(got, x @ weight + bias):
            raise Wrong(
                "For d_in = d_out this is x W; the formula is x Wᵀ: each row of `weight` belongs to an output.",
                "weight_not_transposed",
            )
    c.expect(got, x @ weight.T + bias, "x Wᵀ + b", axes="batch d_out")


def _linear_square(c: Context) -> None:
    _product(c, c.build(d_in=4, d_out=4).double(), 4)


def _linear_values(c: Context) -> None:
    _product(c, c.build().double(), 5)


def _linear_leading(c: Context) -> None:
    module = c.build().double()
    module.write(c.randn(module.size(), dtype=torch.float64))
    flat = module.call(c.randn(1, 5, dtype=torch.float64))
    c.expect(
        flat,
        torch.zeros(1, 7, dtype=torch.float64),
        "the output for (1, d_in)",
        axes="batch d_out",
        atol=math.inf,
    )
    for shape in ((5,), (3, 1, 5), (2, 3, 5), (2, 3, 4, 5)):
        x = c.randn(*shape, dtype=torch.float64)
        rows = module.call(x.reshape(-1, 5))
        c.expect(module.call(x), rows.reshape(*shape[:-1], 7), f"the output for x of shape {shape}")


def _linear_start(c: Context) -> None:
    weight = c.build().attribute("weight").detach()
    if bool((weight == weight[:1]).all()):
        raise Wrong(
            "All rows of `weight` start equal, so all outputs would learn the same: start them at random.",
            "weights_start_equal",
        )


def _linear_gradients(c: Context) -> None:
    module = c.build().double()
    module.write(c.randn(module.size(), dtype=torch.float64))
    weight = module.attribute("weight").detach()
    x = c.randn(2, 3, 5, dtype=torch.float64)
    theirs = solutions.Linear(5, 7).double()
    with torch.no_grad():
        theirs.weight.copy_(weight)
    c.same_gradients(x, wrt={"x": 0}, ours=module, theirs=theirs)
    gradient = module.respond([Probe((x,))], c.seed)[1]
    start = 0
    for name, shape in module.parameters():
        count = math.prod(shape)
        if not gradient[start : start + count].any():
            raise Wrong(
                f"No gradient reaches `{name}`, so it would never be trained.", f"no_gradient_to_{name}"
            )
        start += count


def _linear_dtype(c: Context) -> None:
    got = c.build().call(c.randn(3, 5))
    if isinstance(got, Tensor) and got.dtype != torch.float32:
        raise Wrong(f"For a float32 input the output should be float32; yours is {got.dtype}.", "wrong_dtype")


def _linear_kept(c: Context) -> None:
    module, x = c.build(), c.randn(3, 2, 5)
    if not torch.equal(module.observe(x)[1][0], x):
        raise Wrong("Your code changes its argument x in place; work on a copy.", "changes_its_input")
    before = module.read()
    c.expect(module.call(x), module.call(x), "the output of a second call", mistake="keeps_state")
    c.expect(module.read(), before, "the parameters after a call", mistake="keeps_state")
    turned = x.transpose(0, 1).contiguous().transpose(0, 1)
    c.expect(module.call(turned), module.call(x), "the output for an input that is not contiguous")


_exercise = partial(Exercise, notebook="00_start_here")

EXERCISES = (
    _exercise(
        name="softmax",
        points=2,
        difficulty=1,
        minutes=10,
        hints=(
            "What happens to exp(x) / sum(exp(x)) when you subtract the same constant from every entry of a slice?",
            "Subtract the largest value of each slice, x.amax(dim, keepdim=True). Where it is -inf, subtract 0 instead.",
            "exps = (x - largest).exp(); total = exps.sum(dim, keepdim=True); where total is 0 divide by 1 instead.",
        ),
        reference=solutions.softmax,
        tests=(
            Test("values", "equals exp(x) / sum(exp(x)) along the last axis", _softmax_values),
            Test("dim", "works along any axis", _softmax_dim, crash="dim_not_general"),
            Test("large", "stays finite for large inputs", _softmax_large),
            Test("negative", "stays finite for very negative inputs", _softmax_negative),
            Test("far_apart", "treats each slice on its own, however far apart they are", _softmax_apart),
            Test("some_minus_infinity", "gives 0 where an input is -inf", _softmax_some),
            Test("all_minus_infinity", "gives zeros for a slice that is -inf everywhere", _softmax_full, crash="crashes_on_minus_infinity"),
            Test("gradient", "has the right gradient", _softmax_gradient),
            Test("dtype", "works in double precision", _softmax_dtype, crash="fixed_dtype"),
            Test("inputs_kept", "leaves its input as it was, contiguous or not", _softmax_kept, crash="needs_contiguous_input"),
        ),
        mistakes=_SOFTMAX,
        variant=_softmax_variant,
        probes=_softmax_probes,
        not_allowed=("softmax",),
    ),
    _exercise(
        name="Linear",
        points=2,
        difficulty=1,
        minutes=10,
        hints=(
            "Which two tensors does training change, and what are their shapes?",
            "Make both nn.Parameter in __init__, after super().__init__(). The product on the last axis is x @ self.weight.T.",
            "self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None; forward: y = x @ self.weight.T, plus self.bias if there is one.",
        ),
        reference=solutions.Linear,
        tests=(
            Test("parameters", "has the parameters `weight` (d_out, d_in) and `bias` (d_out)", _linear_parameters),
            Test("square", "uses `weight` with one row per output", _linear_square),
            Test("values", "equals x Wᵀ + b", _linear_values),
            Test("leading_axes", "takes any number of axes before the last", _linear_leading, crash="fixed_number_of_dimensions"),
            Test("no_bias", "has no bias with bias=False", _linear_no_bias, crash="crashes_without_bias"),
            Test("start", "starts with rows that differ", _linear_start),
            Test("gradients", "lets the gradient through to x, weight and bias", _linear_gradients),
            Test("dtype", "gives float32 for float32", _linear_dtype),
            Test("inputs_kept", "leaves its input as it was, contiguous or not", _linear_kept, crash="needs_contiguous_input"),
        ),
        mistakes=_LINEAR,
        variant=_linear_variant,
        probes=_linear_probes,
        sizes=_SIZES,
        not_allowed=("nn.Linear", "F.linear"),
    ),
)  # fmt: skip
