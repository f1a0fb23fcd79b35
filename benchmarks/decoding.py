"""CPU time of greedy decoding with a cache: the course's fast form against Marian's generate, in turns.

    python benchmarks/decoding.py [ROUNDS]

Size m of peers.py, sources of 20 to 40 tokens padded on the right, 40 tokens written for each (the end of sequence is
ruled out), batches of 1 and of 64, one thread. A ratio is Marian's CPU time divided by the contestant's in the same
round (above 1 is faster), as median [min max]. Weights are random: the time does not depend on them. The plain model
has no cache and computes every prefix anew; with 64 sequences it runs once.
"""

import statistics
import sys
import time

import torch
from peers import SIZE, SIZE_M, VOCABULARY, Marian, batch_m, transformers_version

from txcourse.fast import Decoding, FastTransformer
from txcourse.solutions.decoding import greedy_decode

N_TOKENS = 40


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, transformers {transformers_version()}, {rounds} rounds, one thread")
    torch.manual_seed(0)
    marian = Marian(VOCABULARY, **SIZE).eval()
    model = FastTransformer(VOCABULARY, VOCABULARY, max_len=256, **SIZE_M).eval()
    decoding = Decoding([model])
    contestants = {
        "Marian": lambda src: marian.greedy(src, N_TOKENS),
        "txcourse, fast": lambda src: decoding.greedy(src, N_TOKENS + 1, 1, -1),
        "txcourse, plain": lambda src: greedy_decode(model, src, N_TOKENS + 1, 1, -1),
    }
    generator = torch.Generator().manual_seed(0)
    for batch_size in (1, 64):
        times: dict[str, list[float]] = {key: [] for key in contestants}
        for i in range(rounds + 1):
            src = batch_m(generator)[0][:batch_size]
            src = src[:, : int((src != 0).sum(1).max())]
            for key, decode in contestants.items():
                if key == "txcourse, plain" and batch_size > 1 and i != 1:
                    continue
                started = time.process_time()
                decoded = decode(src)
                if i >= 1:  # the first one warms up
                    times[key].append(time.process_time() - started)
                if decoded.shape != (batch_size, N_TOKENS + 1):
                    raise RuntimeError(f"{key} wrote {tuple(decoded.shape)}")
        for key, spent in times.items():
            ratios = [a / b for a, b in zip(times["Marian"], spent, strict=False)]
            print(
                f"batch {batch_size:2}  {key:16} {1000 * statistics.median(spent):8.0f} ms   "
                f"{statistics.median(ratios):.2f} [{min(ratios):.2f} {max(ratios):.2f}]",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
