"""Drawing that computes something."""

import numpy as np

from txcourse.plots import _apart


def test_names_are_moved_until_none_overlap() -> None:
    crowded = np.random.default_rng(0).uniform(0.4, 0.6, (12, 2))
    crowded[1] = crowded[0]  # two in one place
    places = _apart(crowded, width=0.06, height=0.05)
    for i in range(12):
        for j in range(i):
            assert (abs(places[i] - places[j]) >= (0.06, 0.05)).any()
    assert (places[:, 0] == crowded[:, 0]).all()
    assert (_apart(np.eye(3)[:, :2]) == np.eye(3)[:, :2]).all()  # far apart: left alone
