"""Build the Transformer from its smallest part up to a trained encoder-decoder.

What a notebook imports from here: ``check``, ``hint``, ``reveal``, ``progress``, ``run_check``. Each is
loaded when it is first used, so that ``import txcourse`` stays fast and does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txcourse.exercises import run_check
    from txcourse.learner import check, hint, progress, reveal

__version__ = "0.1.0"
__all__ = ["__version__", "check", "hint", "progress", "reveal", "run_check"]

_HOME = {
    "check": "txcourse.learner",
    "hint": "txcourse.learner",
    "progress": "txcourse.learner",
    "reveal": "txcourse.learner",
    "run_check": "txcourse.exercises",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
