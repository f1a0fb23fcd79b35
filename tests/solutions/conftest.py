import pytest
import torch


@pytest.fixture(autouse=True)
def seed() -> None:
    """Every test alone gives what it gives among the others."""
    torch.manual_seed(0)
