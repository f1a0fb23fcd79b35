"""`txcourse train CONFIG --ablation`: the same short run again and again, each time with one thing changed."""

import json
import sys
from pathlib import Path
from typing import Any

from txcourse import data
from txcourse.errors import UserError
from txcourse.solutions.transformer import count_parameters
from txcourse.training.checkpoints import cannot_save, list_checkpoints, write_atomically
from txcourse.training.commands import choose_device
from txcourse.training.config import load_config
from txcourse.training.loop import Stopped, train
from txcourse.training.scoring import score

# What each run changes in the configuration. A step of the last two takes the default's time on a CPU, within 10 %.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no warm-up": {"warmup": 0.0},
    "no decay": {"final_lr": 1.0},
    "no smoothing": {"smoothing": 0.0},
    "post-norm": {"norm_first": False},
    "learned positions": {"positions": "learned"},
    "no positions": {"positions": "none"},
    "1 head": {"n_heads": 1},
    "8 heads": {"n_heads": 8},
    "deep and narrow": {"n_layers": 3, "d_model": 72, "d_ff": 288},
    "shallow and wide": {"n_layers": 1, "d_model": 160, "d_ff": 640},
}


def ablation_command(
    config: str,
    *,
    out: Path | None = None,
    device: str | None = None,
    steps: int | None = None,
    seed: int | None = None,
    as_json: bool = False,
) -> None:
    """Train every variant of a pronunciation configuration for `steps` updates and print one table.

    Each has a folder of its own in `out` (runs/ablation by default). The same command goes on where a killed one
    stopped. `out`/ablations.json holds what is finished: for each variant its changes, parameters, steps, seconds,
    the training loss since the measurement before, and the error rates on dev and test, greedy.
    """
    device = choose_device(device)
    asked = {name: value for name, value in {"steps": steps, "seed": seed}.items() if value is not None}
    base = load_config(config, device).replace(**asked)
    if base.task == "translation":
        raise UserError("The ablations compare error rates: choose another configuration than a translation.")
    out = out or Path("runs") / "ablation"
    dataset = data.load(base.task)
    rows: list[dict[str, Any]] = []
    for number, (name, changes) in enumerate(VARIANTS.items(), start=1):
        print(f"{number} of {len(VARIANTS)}: {name}", file=sys.stderr)
        settings = base.replace(evaluate_every=min(base.evaluate_every, base.steps), average=1, **changes)
        run = out / name.replace(" ", "-")
        try:
            model, history = train(settings, dataset, run, device, resume=bool(list_checkpoints(run)))
        except Stopped as stopped:
            print(f"{stopped} The same command goes on.", file=sys.stderr)
            raise SystemExit(130) from None
        last = history[-1]
        dev = {name: last[name] for name in ("token_error_rate", "sequence_error_rate")}
        rows.append(
            {
                "variant": name,
                "changes": changes,
                "parameters": count_parameters(model),
                "steps": last["step"],
                "seconds": last["seconds"],
                "loss": last["loss"],
                "dev": {**dev, "examples": len(dataset.dev), "decoding": "greedy"},
                "test": score(model, dataset, "test"),
            }
        )
        result = {
            "made": f"txcourse train {config} --ablation --steps {base.steps} --seed {base.seed}",
            "device": device,
            "config": base.to_dict(),
            "variants": rows,
        }
        try:
            write_atomically(out / "ablations.json", (json.dumps(result, indent=1) + "\n").encode())
        except OSError as error:
            raise cannot_save("the table", out, error) from None
    if as_json:
        print(json.dumps(result))
        return
    print(
        f"{'variant':<20} {'parameters':>10} {'seconds':>8} {'loss':>6} {'sequences':>10} {'tokens wrong':>13}"
    )
    for row in rows:
        test = row["test"]
        print(
            f"{row['variant']:<20} {row['parameters']:>10,} {row['seconds']:>8.0f} {row['loss']:>6.3f} "
            f"{test['sequence_error_rate']:>10.1%} {test['token_error_rate']:>13.1%}"
        )
    print(
        f"Test split, {rows[0]['test']['examples']:,} sequences, greedy; {base.steps:,} steps each; in {out}"
    )
