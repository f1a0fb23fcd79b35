"""One run over the corpus of files, for all tests that look at what came out."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.grading import corpus
from txcourse.grading.assignment import Assignment, build
from txcourse.grading.grade import grade
from txcourse.grading.results import Results, write_all


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The seed of this user's is not touched."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def assignment() -> Assignment:
    return build(
        {
            "title": "Masks",
            "exercises": list(corpus.ASKED),
            "seed": 7,
            "points": dict.fromkeys(corpus.ASKED, 1),
        }
    )


@dataclass(frozen=True)
class Graded:
    """The corpus, graded once: what should come out, what did, and a fingerprint of the files from before."""

    folder: Path
    expected: dict[str, corpus.Expected]
    results: Results
    before: str

    @property
    def out(self) -> Path:
        return self.folder / "out"


def fingerprint(folder: Path) -> str:
    """Of the names and contents of all files below, but for those of the results."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if "out" not in file.relative_to(folder).parts[:1]:
            digest.update(str(file).encode("utf-8", "surrogateescape"))
            digest.update(file.read_bytes() if file.is_file() and not file.is_symlink() else b"")
    return digest.hexdigest()


@pytest.fixture(scope="session")
def graded(tmp_path_factory: pytest.TempPathFactory, assignment: Assignment) -> Iterator[Graded]:
    folder = tmp_path_factory.mktemp("corpus")
    expected = corpus.write(folder)
    before = fingerprint(folder)
    found = grade(folder / "in", folder / "out", assignment, jobs=2, progress=False)
    results = Results(replace(assignment), found)
    write_all(results, folder / "out")
    yield Graded(folder, expected, results, before)
