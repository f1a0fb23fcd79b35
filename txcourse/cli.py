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
    timeout: Annotated[float, typer.Option(help="Seconds that one exercise may take.")] = 60.0,
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
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the data when the course does not carry them.")
    ] = False,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="Train variants, each with one thing changed, and compare.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model, with checkpoints, and print its scores on the test split.

    Example: txcourse train pronunciation --minutes 5
    """
    from txcourse.training.commands import train_command

    if ablation:
        from txcourse.training.ablations import ablation_command

        if minutes is not None:
            raise UserError("The variants are compared at equal steps: give --steps, not --minutes.")
        ablation_command(config, out=out, device=device, steps=steps, seed=seed, as_json=as_json)
        return

    train_command(
        config,
        out=out,
        device=device,
        steps=steps,
        minutes=minutes,
        seed=seed,
        resume=resume,
        download=download,
        as_json=as_json,
    )


@app.command()
def score(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of runs, several as an ensemble; the course's own model without."),
    ] = None,
    beam: Annotated[int, typer.Option(help="Beam size; 1 for greedy decoding alone.")] = 5,
    length_penalty: Annotated[
        float, typer.Option(help="A sum of log-probabilities is divided by length to this power.")
    ] = 1.0,
    average: Annotated[
        int | None, typer.Option(help="Take the mean of so many last checkpoints, not the result.")
    ] = None,
    split: Annotated[str, typer.Option(help="dev or test.")] = "test",
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps; the best one without.")] = None,
    as_json: Json = False,
) -> None:
    """Measure trained models, greedy and with a beam: sequences (words) and tokens (phonemes) that are wrong, or BLEU.

    Example: txcourse score runs/one runs/two --beam 5 --average 5
    """
    from txcourse.training.scoring import score_command

    score_command(
        runs or [],
        beam_size=beam,
        length_penalty=length_penalty,
        average=average,
        split=split,
        device=device,
        as_json=as_json,
    )


@app.command()
def pronounce(
    words: Annotated[list[str] | None, typer.Argument(help="Words; from standard input without.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder of a run; the model that comes with the course without.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy.")] = 1,
    attention: Annotated[
        Path | None, typer.Option(help="Write the attention of one word as a picture.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how English words are pronounced, by a trained model.

    Example: txcourse pronounce transformer --attention attention.png
    """
    from txcourse.training.commands import pronounce_command

    pronounce_command(words or [], model=model, beam_size=beam, attention=attention, as_json=as_json)


@app.command()
def translate(
    sentences: Annotated[
        list[str] | None, typer.Argument(help="Sentences; the lines of standard input without.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder of a run; runs/translation without.", show_default=False)
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Translate the lines of this file.")] = None,
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy.")] = 5,
    as_json: Json = False,
) -> None:
    """Translate English sentences into German, by a model that `txcourse train translation` made.

    Example: txcourse translate "A grey cat is sleeping on a red car."
    """
    from txcourse.training.translation import translate_command

    translate_command(sentences or [], model=model, file=file, beam_size=beam, as_json=as_json)


Asked = Annotated[
    Path | None,
    typer.Option(
        "--assignment", help="What is asked, in a TOML file (docs/instructors.md).", show_default=False
    ),
]
Notebooks = Annotated[
    list[str] | None,
    typer.Option("--notebook", help="In place of a file: all exercises of this notebook. May be repeated."),
]
Due = Annotated[
    str | None, typer.Option(help="A moment such as 2027-03-01T23:59; what comes later is marked late.")
]


@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(help="A notebook, a folder, or the zip of an LMS.")],
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results"),
    assignment: Asked = None,
    notebook: Notebooks = None,
    roster: Annotated[
        Path | None, typer.Option(help="CSV file of the students: id, name, email.", show_default=False)
    ] = None,
    due: Due = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; one for each processor without.")
    ] = None,
    shard: Annotated[str, typer.Option(help="i/n: the i-th of n machines that share the folder.")] = "1/1",
    as_json: Json = False,
) -> None:
    """Grade submissions: grades.csv, results.json, class.html, and a page of feedback for each student.

    May be stopped at any moment; the same command goes on. Example: txcourse grade submissions.zip --notebook 03
    """
    from txcourse.grading.commands import grade_command

    grade_command(submissions, out, assignment, notebook, roster, due, jobs, shard, as_json)


@app.command()
def export(
    what: Annotated[str, typer.Argument(help="handout, gradescope, canvas, moodle or nbgrader.")],
    out: Annotated[Path, typer.Option(help="File or folder to write.", show_default=False)],
    assignment: Asked = None,
    notebook: Notebooks = None,
    due: Due = None,
    results: Annotated[Path, typer.Option(help="Folder of `txcourse grade`, for canvas and moodle.")] = Path(
        "results"
    ),
    table: Annotated[
        Path | None,
        typer.Option(
            help="The gradebook or worksheet that the LMS exported, to be filled.", show_default=False
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="canvas: the column to fill, by its title.", show_default=False)
    ] = None,
) -> None:
    """Write what students get, or what an LMS takes.

    handout: notebooks for the students. gradescope: the autograder's zip. canvas, moodle: the table that the LMS
    exported, filled. nbgrader: a source folder. Example: txcourse export handout --notebook 03 --out handout
    """
    from txcourse.grading.commands import export_command

    export_command(what, out, assignment, notebook, due, results, table, column)


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
