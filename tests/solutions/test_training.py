import copy
import math

import pytest
import torch
import torch.nn.functional as F

from txcourse.solutions.batching import collate
from txcourse.solutions.training import (
    adam_step,
    clip_gradients,
    label_smoothed_cross_entropy,
    noam_lr,
    train_step,
)
from txcourse.solutions.transformer import Transformer


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("pad_id", [0, 4, -100])
def test_loss_equals_torch(smoothing: float, pad_id: int) -> None:
    logits = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 7, (3, 5))
    targets[1, 2:] = pad_id
    ours = label_smoothed_cross_entropy(logits, targets, smoothing, pad_id)
    theirs = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=pad_id, label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, theirs)))


def test_loss_by_hand_and_without_real_tokens() -> None:
    logits = torch.tensor([[2.0, 0, 0, 0], [9.0, 9, 1, 1]], requires_grad=True)
    loss = label_smoothed_cross_entropy(logits, torch.tensor([0, 3]), 0.1, pad_id=3)
    assert abs(loss.item() - 0.4908) < 1e-4
    nothing = label_smoothed_cross_entropy(logits, torch.tensor([3, 3]), 0.1, pad_id=3)
    assert nothing.item() == 0.0
    nothing.backward()
    assert logits.grad is not None and (logits.grad == 0).all()


def test_noam() -> None:
    assert noam_lr(0, 512, 4000) == noam_lr(1, 512, 4000) > 0
    assert math.isclose(noam_lr(1, 64, 100), 1 / 8 / 1000)
    peak = noam_lr(4000, 512, 4000)
    assert abs(peak - 6.988e-4) < 1e-6
    assert math.isclose(noam_lr(2000, 512, 4000), peak / 2)
    assert math.isclose(noam_lr(16000, 512, 4000), peak / 2)
    assert math.isclose(noam_lr(100, 512, 4000, factor=3.0), 3 * noam_lr(100, 512, 4000))


def test_adam_equals_torch() -> None:
    ours = [torch.randn(3, 4).double(), torch.randn(5).double(), torch.randn(2).double()]
    theirs = [p.clone().requires_grad_() for p in ours]
    kept = [p.data_ptr() for p in ours]
    optimizer = torch.optim.Adam(theirs, lr=0.1, betas=(0.9, 0.98), eps=1e-9)
    state: dict = {}
    for step in range(20):
        gradients = [torch.randn_like(p) if i != 2 else None for i, p in enumerate(ours)]
        if step % 3 == 0:
            gradients[1] = None  # skipped: its own step count stays
        for p, g in zip(theirs, gradients, strict=True):
            p.grad = g
        adam_step(iter(ours), gradients, state, lr=0.1)
        optimizer.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q.detach())
    assert [p.data_ptr() for p in ours] == kept


def test_adam_on_leaves_that_require_gradient() -> None:
    p = torch.ones(2, requires_grad=True)
    adam_step([p], [torch.tensor([1.0, -4.0])], {}, lr=0.5)
    torch.testing.assert_close(p.detach(), torch.tensor([0.5, 1.5]))


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_equals_torch(max_norm: float) -> None:
    ours = [torch.zeros(3, 4), torch.zeros(5), torch.zeros(2)]
    for p in ours[:2]:
        p.grad = torch.randn_like(p)
    theirs = copy.deepcopy(ours)
    for p, q in zip(ours, theirs, strict=True):
        q.grad = None if p.grad is None else p.grad.clone()
    norm = clip_gradients(iter(ours), max_norm)
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(theirs, max_norm))
    for p, q in zip(ours[:2], theirs[:2], strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    assert clip_gradients([torch.zeros(2)], 1.0) == 0 and clip_gradients([], 1.0) == 0


@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_train_step_equals_one_big_batch(max_norm: float | None) -> None:
    torch.manual_seed(0)
    model = Transformer(11, 13, 12, 3, 1, 20, dropout=0.0).double()
    sources = [[4, 5, 6], [7], [8, 9], [10, 4, 4, 4]]
    targets = [[5, 6, 7, 8, 9, 10], [4], [4, 5, 6], []]  # unequal numbers of real tokens

    def pairs(indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return tuple(collate([x[i] for i in indices], 0, 1, 2) for x in (sources, targets))  # type: ignore

    results = []
    for split in ([[0, 1, 2, 3]], [[0], [1, 2], [3]]):
        twin = copy.deepcopy(model)
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
        twin.output.weight.grad = torch.full_like(twin.output.weight, 99.0)  # old: must not count
        loss = train_step(twin, [pairs(indices) for indices in split], optimizer, 0.1, max_norm)
        results.append((loss, twin))
    (loss_1, one), (loss_2, many) = results
    assert isinstance(loss_2, float) and math.isclose(loss_1, loss_2)
    src, tgt = pairs([0, 1, 2, 3])
    expected = F.cross_entropy(
        model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1
    )
    assert math.isclose(loss_1, expected.item())
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    norm = torch.cat([g.flatten() for g in gradients]).norm().item()
    factor = 1.0 if max_norm is None else max_norm / norm
    assert max_norm is None or factor < 1
    for p, q, start, g in zip(
        one.parameters(), many.parameters(), model.parameters(), gradients, strict=True
    ):
        torch.testing.assert_close(p, q)
        torch.testing.assert_close(q, start - 0.5 * factor * g, atol=1e-6, rtol=0)
    with_default = train_step(copy.deepcopy(model), [(src, tgt)], torch.optim.SGD(model.parameters(), lr=0.0))
    assert math.isclose(with_default, loss_1)  # smoothing = 0.1


def test_a_small_model_learns_to_copy() -> None:
    torch.manual_seed(0)
    model = Transformer(9, 9, 32, 2, 1, 64, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    losses = []
    for _ in range(150):
        batch = collate(torch.randint(4, 9, (32, 4)).tolist(), 0, 1, 2)
        losses.append(train_step(model, [(batch, batch)], optimizer, smoothing=0.0, max_norm=1.0))
    assert losses[0] > 1.5 and sum(losses[-5:]) / 5 < 0.2
