"""A training run, from a configuration to a trained model, read from top to bottom.

    torchrun --nproc-per-node 2 -m txcourse.cli train pronunciation

starts the same run on several processes: each works on its part of every batch, and the update is that of the whole.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from txcourse.data import Dataset, TranslationDataset
from txcourse.errors import UserError
from txcourse.fast import FastTransformer
from txcourse.solutions.batching import shift_target
from txcourse.training.batches import TrainingBatches
from txcourse.training.checkpoints import (
    State,
    append_metrics,
    average_weights,
    build_model,
    copy_parameters,
    list_checkpoints,
    load_state,
    read_metrics,
    restore,
    save_checkpoint,
)
from txcourse.training.config import Config
from txcourse.training.evaluation import decode_all, evaluate
from txcourse.training.translation import quick_bleu


class Stopped(Exception):
    """The run was interrupted with Ctrl-C after its state was saved; the message says how to go on."""


def train(
    config: Config,
    dataset: Dataset,
    out: Path | None = None,
    device: str = "cpu",
    resume: bool = False,
    model: nn.Module | None = None,
    progress: bool = True,
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """Train, and return (model, measurements). With `out`, checkpoints and metrics are kept in that folder.

    `model` is any module with `model(src, tgt) -> logits`, for example one made of your own parts; by default it is
    the course's, in its fast form. A measurement is a dictionary: step, epoch, loss (mean over the real targets
    since the last one), lr, token_error_rate and sequence_error_rate on the development set, tokens_per_second,
    seconds. On a CPU the same configuration gives the same weights to the last bit, also when the run was killed and
    resumed in between.

    Raises UserError when the folder cannot be used, the disk is full or the checkpoints are of another
    configuration; Stopped after Ctrl-C.
    """
    world = World.join(device)
    on_gpu = world.device.type == "cuda"

    # The model. Its first weights follow from the seed.
    torch.manual_seed(config.seed)
    if model is None:
        model = build_model(config, dataset.source, dataset.target)
    model = model.to(world.device).train()
    objective: nn.Module = SummedLoss(model, config.smoothing)
    if on_gpu:
        torch.set_float32_matmul_precision("high")
        objective.compile(dynamic=True)  # not on a CPU: no gain there after half a minute of compiling
    if world.size > 1:
        objective = DistributedDataParallel(objective)
    adam = torch.optim.Adam(
        model.parameters(), betas=(0.9, config.beta2), eps=1e-9, fused=world.device.type != "mps"
    )

    # The data. Which examples an update sees follows from the seed and the number of the step.
    batches = TrainingBatches(dataset.train, dataset.source, dataset.target, config.batch_size, config.seed)
    n_pieces = world.size * config.micro_batches
    if batches.smallest < n_pieces:
        raise UserError(f"A batch of {batches.smallest} examples cannot be cut into {n_pieces} pieces.")

    # Where the run stands.
    state, history = State(), []
    keep = max(2, config.average)  # one more than needed, in case the last one is damaged
    if out is not None and resume:
        state, tensors = load_state(out, config)
        restore(model, adam, tensors)
        history = read_metrics(out, state.step, rewrite=world.first)
    elif out is not None and world.first:
        if list_checkpoints(out) or (out / "model.safetensors").exists():
            raise UserError(f"{out} already holds a run: continue it with --resume, or choose another --out.")
        save_checkpoint(out, state, config, model, adam, keep)  # a folder that cannot be written fails now
    loss_sum = torch.tensor(state.loss_sum, device=world.device)  # since the last measurement
    started = time.monotonic() - state.seconds

    with (
        cpu_threads(config.threads),
        progress_bar(config, state, history, progress and world.first) as bar,
        interruption(world) as interrupted,
    ):
        while state.step < config.steps:
            # One update. The loss is the sum over the whole batch divided by its number of targets, so it makes
            # no difference into how many pieces, on how many processes, the batch is cut.
            # Dropout is a function of the step, too, and differs between the processes.
            torch.manual_seed((config.seed * 1_000_003 + state.step) * world.size + world.rank)
            lr = learning_rate(state.step, config)
            indices = batches.indices(state.step)
            n_targets = batches.n_targets(indices)
            adam.zero_grad(set_to_none=True)
            for i in range(config.micro_batches):
                src, tgt = batches.tensors(indices[world.rank + i * world.size :: n_pieces], world.device)
                is_last = i == config.micro_batches - 1
                with (
                    torch.autocast("cuda", torch.bfloat16, enabled=on_gpu),
                    nullcontext() if is_last or world.size == 1 else objective.no_sync(),  # type: ignore[operator]
                ):
                    loss = objective(src, tgt)
                    (loss * world.size / n_targets).backward()  # DDP takes the mean over the processes
                loss_sum += loss.detach()
            nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)
            for group in adam.param_groups:
                group["lr"] = lr
            adam.step()

            state.step += 1
            state.targets += n_targets
            state.tokens += batches.n_tokens(indices)
            state.seconds = time.monotonic() - started
            bar.update()
            if state.step % 10 == 0:
                bar.show(
                    loss=f"{float(loss_sum) * world.size / state.targets:.3f}",
                    tokens=state.tokens_per_second(),
                )

            # From time to time: measure, then save.
            measured = state.step % config.evaluate_every == 0 or state.step == config.steps
            if measured:
                if world.size > 1:
                    dist.all_reduce(loss_sum)
                if world.first:
                    scores = measure(model, dataset)
                    history.append(
                        {
                            "step": state.step,
                            "epoch": round(state.step / batches.per_epoch, 3),
                            "loss": float(loss_sum) / state.targets,
                            "lr": lr,
                            **scores,
                            "tokens_per_second": state.tokens_per_second(),
                            "seconds": round(time.monotonic() - started, 1),
                        }
                    )
                    bar.show(dev=scores)
                loss_sum.zero_()
                state.targets = state.tokens = 0
                state.seconds = state.measured_at = time.monotonic() - started
            if out is not None and world.first and (measured or interrupted()):
                state.loss_sum = float(loss_sum)
                if measured:
                    append_metrics(out, history[-1])
                save_checkpoint(out, state, config, model, adam, keep)
            if interrupted() and state.step < config.steps:
                saved = "" if out is None else f"; saved in {out}, continue with --resume"
                raise Stopped(f"Stopped at step {state.step} of {config.steps}{saved}.")

    # The result: the last weights, or the mean of the last few when that is better on the development set.
    if config.average > 1 and out is not None and world.first:
        last_weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        paths = [path for path in list_checkpoints(out)[-config.average :] if "00000000" not in path.name]
        copy_parameters(model, average_weights(paths))
        scores, before = measure(model, dataset), history[-1]
        if scores.get("bleu", 0) < before.get("bleu", 0) or (
            scores.get("sequence_error_rate", 0) > before.get("sequence_error_rate", 0)
        ):
            copy_parameters(model, last_weights)
        else:
            history[-1] |= scores  # what the returned weights score
    world.leave()
    return model.eval(), history


def measure(model: nn.Module, dataset: Dataset) -> dict[str, float]:
    """What greedy decoding of the development set scores: BLEU of a translation, else the two error rates."""
    limit = dataset.max_len + 3
    if isinstance(dataset, TranslationDataset):
        sources, references = [src for src, _ in dataset.dev], [tgt for _, (tgt,) in dataset.dev]
        return {
            "bleu": quick_bleu(decode_all(model, sources, dataset.source, dataset.target, limit), references)
        }
    return evaluate(model, dataset.dev, dataset.source, dataset.target, limit)._asdict()


class SummedLoss(nn.Module):
    """The loss of a batch, summed over its real targets, as one module that can be compiled and distributed."""

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        # The fast form's packing makes tensors whose sizes depend on the data, which a GPU has to wait for.
        if isinstance(self.model, FastTransformer) and not src.is_cuda:
            return self.model.summed_loss(src, tgt, self.smoothing)
        inputs, labels = shift_target(tgt)
        logits = self.model(src, inputs).flatten(0, 1).float()  # (B·T, V)
        return F.cross_entropy(
            logits, labels.flatten(), ignore_index=0, reduction="sum", label_smoothing=self.smoothing
        )


def learning_rate(step: int, config: Config) -> float:
    """Rate of the update number `step` (from 0): a linear rise, then half a cosine down to final_lr · peak_lr.

    Source: Loshchilov and Hutter (2017), "SGDR", equation 5, without restarts.
    """
    warmup = config.warmup * config.steps
    if step < warmup:
        return config.peak_lr * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1.0, config.steps - 1 - warmup)
    return config.peak_lr * (config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * progress)) / 2)


@dataclass
class World:
    """The processes that train together: one, unless torchrun started more."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process is the one that measures, saves and prints."""
        return self.rank == 0

    @classmethod
    def join(cls, device: str) -> "World":
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls(0, 1, torch.device(device))
        where = torch.device(device)
        if where.type == "cuda":
            where = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(where)
        dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
        return cls(dist.get_rank(), size, where)

    def leave(self) -> None:
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()


class progress_bar(tqdm):
    """steps done, steps per second, time left, and at its end what `show` was last told."""

    def __init__(self, config: Config, state: State, history: list[dict[str, Any]], visible: bool) -> None:
        # A long memory: measurements count into the speed, so that the time left is true and does not jump.
        super().__init__(
            total=config.steps,
            initial=state.step,
            desc=config.task,
            unit="step",
            smoothing=0.01,
            disable=not visible,
            dynamic_ncols=True,
        )
        self.shown: dict[str, str] = {}
        if history:
            self.show(dev=history[-1])

    def show(self, loss: str = "", tokens: int = 0, dev: dict[str, Any] | None = None) -> None:
        values = {"loss": loss, "tokens/s": f"{tokens:,}" if tokens else ""}
        if dev and "bleu" in dev:
            values["dev BLEU"] = f"{dev['bleu']:.1f}"
        elif dev:
            values["dev error"] = f"{dev['sequence_error_rate']:.1%}"
        self.shown |= {name: value for name, value in values.items() if value}
        self.set_postfix(self.shown, refresh=False)


@contextmanager
def cpu_threads(n: int) -> Iterator[None]:
    """Compute on so many threads; their number decides the order of some additions, so it is a part of the run."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def interruption(world: World) -> Iterator[Any]:
    """Turn Ctrl-C into a question that the loop asks between two updates; a second Ctrl-C stops at once."""
    asked: list[bool] = []
    if world.size > 1 or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def on_interrupt(number: int, frame: Any) -> None:
        asked.append(True)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
