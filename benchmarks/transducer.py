"""The bar for spelling → pronunciation: an 8-gram finite-state transducer, trained and measured on the course's splits.

    pip install phonetisaurus==0.3.0        (Linux on x86-64 only)
    python benchmarks/transducer.py [pronunciation | pronunciation-2007]

About four minutes of one core: align letters with phonemes, count n-grams of aligned pairs, make the transducer, decode
the test words. The score is the course's: the closest listed pronunciation counts.

Source: Novak et al. (2012), "WFST-based grapheme-to-phoneme conversion"; the tools are those of Phonetisaurus.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from txcourse import data
from txcourse.data import Pair
from txcourse.errors import UserError
from txcourse.solutions.measuring_quality import error_rates

ORDER = 8


def transduce(train: list[Pair], words: list[str], folder: Path) -> list[list[str]]:
    """Train on (letters, phonemes) and return the phonemes of `words`; an empty list where no path was found."""
    package = importlib.util.find_spec("phonetisaurus")
    if package is None or not package.submodule_search_locations:
        raise UserError("The transducer is not installed: pip install phonetisaurus==0.3.0")
    home = Path(package.submodule_search_locations[0])
    tools, libraries = home / "bin" / "x86_64", home / "lib" / "x86_64"

    def run(tool: str, *arguments: str) -> str:
        return subprocess.run(
            [tools / tool, *arguments],
            cwd=folder,
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            check=True,
        ).stdout

    lines = (f"{''.join(letters)}\t{' '.join(phonemes)}\n" for letters, phonemes in train)
    (folder / "train").write_text("".join(lines), encoding="utf-8")
    (folder / "words").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    run("phonetisaurus-align", "--input=train", "--ofile=aligned", "--seq1_del=false")
    run("estimate-ngram", "-o", str(ORDER), "-t", "aligned", "-wl", "arpa")
    run("phonetisaurus-arpa2wfst", "--lm=arpa", "--ofile=fst")
    decoded = run("phonetisaurus-g2pfst", "--model=fst", "--wordlist=words", "--nbest=1")
    answers = {word: phonemes.split() for word, _, phonemes in (s.split("\t") for s in decoded.splitlines())}
    return [answers.get(word, []) for word in words]


def main(task: str = "pronunciation") -> None:
    dataset = data.load(task)
    with tempfile.TemporaryDirectory() as folder:
        answers = transduce(dataset.train, ["".join(letters) for letters, _ in dataset.test], Path(folder))
    phonemes, words = error_rates(answers, [references for _, references in dataset.test])
    print(
        f"{task}, {len(dataset.test):,} test words: {words:.2%} of the words and {phonemes:.2%} of the phonemes are wrong"
    )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (UserError, ValueError) as error:
        sys.exit(str(error))
