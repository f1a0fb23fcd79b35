"""The `txcourse` command. Every command is a thin door: what it does lives in the module it imports."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from txcourse import __version__
from txcourse.errors import UserError

app = typer.Typer(
    name="txcourse",
    help="Build the Transformer from its smallest part up. Start with: txcourse lab",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def main() -> None:
    """Run the command line. A user's error is one plain line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a Windows console in an old code page cannot print every sign
            stream.reconfigure(errors="replace")
    try:
        code = app(standalone_mode=False, prog_name="txcourse")
    except UserError as error:
        print(f"txcourse: {error}", file=sys.stderr)
        code = 2
    except typer.TyperException as error:  # an unknown command, option or value
        print(f"txcourse: {error.format_message()} (see txcourse --help)", file=sys.stderr)
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("txcourse: stopped", file=sys.stderr)
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    from txcourse.learner.workspace import prefer_work_folder

    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
    prefer_work_folder()


@app.command()
def lab(
    port: Annotated[
        int | None, typer.Option(help="Port of the server; without it, the next free one.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open the course in JupyterLab, in a folder of your own (work/, or $TXCOURSE_WORKSPACE).

    Example: txcourse lab --port 8890
    """
    from txcourse.learner.lab import open_lab

    raise typer.Exit(open_lab(port, browser))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Look whether this machine has what the course needs; each line is ok or says what to do.

    Example: txcourse doctor
    """
    from txcourse.doctor import examine

    findings = []
    for finding in examine():
        findings.append(finding)
        if not as_json:
            print(finding, flush=True)
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


@app.command()
def progress(as_json: Json = False) -> None:
    """Show the map of the course: what is done, tried and open.

    Example: txcourse progress
    """
    from txcourse.learner import progress as course_map

    current = course_map()
    print(json.dumps(current.to_dict(), indent=1) if as_json else current)


@app.command()
def check(
    notebook: Annotated[str, typer.Argument(help="A notebook: its file, or its name such as 03_attention.")],
    timeout: Annotated[float, typer.Option(help="Seconds that one exercise may take.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Check all exercises of a notebook in a process of its own, each with a time limit.

    The exit code is 0 when all passed, 1 otherwise. Example: txcourse check 03_attention
    """
    from txcourse.learner.terminal import check_notebook

    results = []
    for result in check_notebook(notebook, timeout):
        results.append(result)
        if not as_json:
            print(result.to_text(), flush=True)
    if as_json:
        print(json.dumps([result.to_dict() for result in results], indent=1))
    else:
        print(f"{sum(r.passed for r in results)} of {len(results)} exercises passed")
    raise typer.Exit(0 if all(result.passed for result in results) else 1)


@app.command()
def hint(exercise: Annotated[str, typer.Argument(help="Name of the exercise.")]) -> None:
    """Show the next hint of an exercise (there are three).

    Example: txcourse hint causal_mask
    """
    from txcourse.learner import hint as next_hint

    next_hint(exercise)


@app.command()
def reveal(
    exercise: Annotated[str, typer.Argument(help="Name of the exercise.")],
    sure: Annotated[
        bool, typer.Option("--sure", help="Show it although the exercise is still open.")
    ] = False,
) -> None:
    """Show the reference solution beside your answer.

    Example: txcourse reveal causal_mask
    """
    from txcourse.learner import reveal as show
    from txcourse.learner import status

    if not sure and status(exercise) != "done" and sys.stdin.isatty():
        sure = typer.confirm(f"{exercise} is still open. Show the reference all the same?")
        if not sure:
            raise typer.Exit
    show(exercise, sure=sure)


@app.command()
def reset(
    name: Annotated[str, typer.Argument(help="An exercise, or a notebook such as 03_attention.")],
) -> None:
    """Put the empty stub back, of one exercise or of a whole notebook; your file is kept, dated, beside it.

    Example: txcourse reset causal_mask
    """
    from txcourse.learner.course import reset as put_back

    for line in put_back(name):
        print(line)


@app.command()
def update() -> None:
    """Bring new versions of the notebooks into your folder; your answers move along, the old file is kept.

    Example: txcourse update
    """
    from txcourse.learner.course import update as bring

    lines = bring()
    print("\n".join(lines))
    if not all(line.endswith("up to date") for line in lines):
        print("What is open in JupyterLab: File, Reload Notebook from Disk.")


@app.command()
def train(
    config: Annotated[str, typer.Argument(help="A preset such as pronunciation, or a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; runs/TASK without.", show_default=False)
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps; the best one without.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of updates, in place of the preset's.")] = None,
    minutes: Annotated[float | None, typer.Option(help="As many steps as fit into this time here.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of initialisation and order.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model, with checkpoints, and print its scores on the test split.

    Example: txcourse train pronunciation --minutes 5
    """
    from txcourse.training.commands import train_command

    train_command(
        config,
        out=out,
        device=device,
        steps=steps,
        minutes=minutes,
        seed=seed,
        resume=resume,
        as_json=as_json,
    )


@app.command()
def pronounce(
    words: Annotated[list[str] | None, typer.Argument(help="Words; from standard input without.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder of a run; the model that comes with the course without.")
    ] = None,
    attention: Annotated[
        Path | None, typer.Option(help="Write the attention of one word as a picture.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how English words are pronounced, by a trained model.

    Example: txcourse pronounce transformer --attention attention.png
    """
    from txcourse.training.commands import pronounce_command

    pronounce_command(words or [], model=model, attention=attention, as_json=as_json)


@app.command()
def build(
    names: Annotated[
        list[str] | None, typer.Argument(help="Notebooks such as 03_attention; all without.")
    ] = None,
) -> None:
    """Write notebooks/solved/: each notebook filled with the reference solutions and executed.

    Example: txcourse build 03_attention
    """
    from txcourse.notebooks import build as build_solved

    for notebook, seconds in build_solved(names or []).items():
        print(f"{notebook}: {seconds} s")


if __name__ == "__main__":
    main()
