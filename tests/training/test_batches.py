import numpy as np
import torch

from txcourse.training.batches import TrainingBatches


def test_every_example_once_an_epoch_in_another_order_each_time(toy):
    batches = TrainingBatches(toy.train, toy.source, toy.target, batch_size=16, seed=1)
    epochs = [[batches.indices(e * batches.per_epoch + i) for i in range(batches.per_epoch)] for e in (0, 1)]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(203))
        assert {len(batch) for batch in epoch} == {15, 16}  # 203 in 13 batches: none is tiny
    assert not all(np.array_equal(a, b) for a, b in zip(*epochs, strict=True))


def test_a_step_alone_decides_its_batch(toy):
    first = TrainingBatches(toy.train, toy.source, toy.target, batch_size=16, seed=1)
    other = TrainingBatches(toy.train, toy.source, toy.target, batch_size=16, seed=1)
    for step in (0, 40, 3, 13, 12):
        assert np.array_equal(first.indices(step), other.indices(step))
    assert not np.array_equal(
        first.indices(0), TrainingBatches(toy.train, toy.source, toy.target, 16, seed=2).indices(0)
    )


def test_like_lengths_stand_together(toy):
    batches = TrainingBatches(toy.train, toy.source, toy.target, batch_size=16, seed=1)
    padding = tokens = 0
    for step in range(batches.per_epoch):
        src, _ = batches.tensors(batches.indices(step), torch.device("cpu"))
        padding += int((src == 0).sum())
        tokens += src.numel()
    assert padding / tokens < 0.05


def test_the_tensors_are_the_examples(toy):
    batches = TrainingBatches(toy.train, toy.source, toy.target, batch_size=16, seed=1)
    indices = batches.indices(5)
    src, tgt = batches.tensors(indices, torch.device("cpu"))
    for row, i in enumerate(indices):
        assert toy.source.decode(src[row].tolist()) == toy.train[i][0]
        assert toy.target.decode(tgt[row].tolist()) == toy.train[i][1]
    assert batches.n_targets(indices) == int((tgt[:, 1:] != 0).sum())
    assert batches.n_tokens(indices) == int((src != 0).sum() + (tgt != 0).sum())
