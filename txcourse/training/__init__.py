"""Training the course's models: configuration, loop, checkpoints, evaluation, and the commands around them."""

from txcourse.training.checkpoints import (
    TrainedModel,
    average_weights,
    list_checkpoints,
    load_model,
    save_model,
)
from txcourse.training.config import Config, load_config, presets
from txcourse.training.evaluation import Scores, decode_all, evaluate
from txcourse.training.loop import Stopped, learning_rate, train

__all__ = [
    "Config",
    "Scores",
    "Stopped",
    "TrainedModel",
    "average_weights",
    "decode_all",
    "evaluate",
    "learning_rate",
    "list_checkpoints",
    "load_config",
    "load_model",
    "presets",
    "save_model",
    "train",
]
