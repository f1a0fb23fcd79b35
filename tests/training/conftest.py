import pytest
import torch

from txcourse.data import Dataset, make_toy_task
from txcourse.training import Config

torch.set_num_threads(1)  # the models are tiny: more threads only wait for each other


@pytest.fixture(scope="session")
def toy() -> Dataset:
    return make_toy_task("reverse", n_train=203, n_dev=20, n_test=20, max_length=6)


@pytest.fixture
def config() -> Config:
    return Config(
        task="reverse",
        d_model=16,
        n_heads=2,
        n_layers=1,
        d_ff=32,
        dropout=0.1,
        steps=30,
        batch_size=16,
        evaluate_every=10,
    )
