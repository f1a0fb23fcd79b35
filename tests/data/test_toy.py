import pytest

from txcourse.data import load, make_toy_task


@pytest.mark.parametrize(
    ("task", "answer"), [("copy", list), ("reverse", lambda s: list(reversed(s))), ("sort", sorted)]
)
def test_each_task_does_what_it_is_called(task, answer):
    dataset = make_toy_task(task, n_train=200, n_dev=20, n_test=30, seed=3)
    assert (len(dataset.train), len(dataset.dev), len(dataset.test)) == (200, 20, 30)
    assert all(target == answer(source) for source, target in dataset.train)
    assert all(references == [answer(source)] for source, references in dataset.dev + dataset.test)
    assert dataset.max_len == 10
    assert {len(source) for source, _ in dataset.train} == set(range(3, 11))


def test_no_sequence_is_in_two_splits():
    dataset = make_toy_task("copy")
    everything = [tuple(source) for source, _ in [*dataset.train, *dataset.dev, *dataset.test]]
    assert len(everything) == len(set(everything))


def test_the_seed_decides():
    assert make_toy_task("sort", seed=5).train == make_toy_task("sort", seed=5).train
    assert make_toy_task("sort", seed=5).train != make_toy_task("sort", seed=6).train


def test_unknown_names_and_too_few_sequences_are_said():
    with pytest.raises(
        ValueError, match="choose one of pronunciation, pronunciation-2007, translation, copy"
    ):
        load("translate")
    with pytest.raises(ValueError, match="choose one of copy"):
        make_toy_task("swap")
    with pytest.raises(ValueError, match="too many"):
        make_toy_task("copy", symbols="ab", max_length=4)
