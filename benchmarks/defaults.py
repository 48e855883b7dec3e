"""Which units and which fill measure relevance? The study behind the defaults of the protocols.

    python -m benchmarks.defaults --data ../shared/data --out defaults-run

Candidates are pairs of units (pixels; grids of 16, 8 and 4 cells a side with a random offset for
each sample; segments) and fill (zero, uniform noise, blur, noisy-linear imputation). Three kinds of
referees judge them:

1. designed: networks written by hand, with exact truth. The number is Kendall's tau between the
   order of the maps by the protocol and by truth.
2. trained: networks trained on planted features, with proof of use, and on painted parts, whose
   truth is measured by painting without them. The number is the same tau.
3. dose: networks trained on CIFAR-10. Each map is mixed with the method's own map of another image,
   in doses of 0 to 1. The number is the standardised slope of the score over the dose.

On every referee, maps without information give a fourth number, `confound`: how far smooth ones are
from `random`, in standard deviations of `random`'s own scores. A fair candidate has 0.

The rule, written before the study was run: for each protocol, every number is standardised over the
candidates within each referee of half A. The score of a candidate is the mean of its standardised
tau on designed networks, tau on trained networks, slope, and minus confound. For the curves the
score is the mean over deletion and insertion. The candidate with the highest score wins; of those
within 0.1 of it, the one that takes least time. Half B has other networks and seeds and takes no
part in the choice; it has half as many samples. How well filled pixels are detected, and costs,
are shown beside. After the first results of half A one thing was added: segments are shown and
cannot be chosen, because they need scikit-image.

A referee that was judged before is read from the output folder. About 15 minutes on one core.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.data.parquet import parquet
from assay.models.cifar_resnet import PIXELS
from assay.types import Preprocess
from benchmarks.defaults_networks import referees, seeded
from benchmarks.defaults_scores import FILLS, UNITS, judge
from benchmarks.defaults_tables import page
from benchmarks.defaults_words import judge_words
from benchmarks.detectable_fills import detectability

DETECTED = 100  # images


def study(data: Path, out: Path, n: int) -> dict[str, Any]:
    """Judge every candidate by every referee; finished parts are read from `out`."""
    out.mkdir(parents=True, exist_ok=True)
    judged = []
    for number, referee in enumerate(referees()):
        own = n if referee.half == "A" else n // 2
        ask = functools.partial(judge, referee, data, own)
        judged.append(_once(out / f"referee{number}.json", ask))
    return {
        "samples": n,
        "referees": judged,
        "detected": _once(out / "detected.json", lambda: detected(data)),
        "words": _once(out / "words.json", lambda: judge_words(data, n)),
    }


def _once(file: Path, make: Callable[[], Any]) -> Any:
    """What was made before, or is made now and written."""
    if not file.exists():
        started = time.process_time()
        file.write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")
        print(f"{file.name}: {time.process_time() - started:.0f} CPU seconds", flush=True)
    return json.loads(file.read_text(encoding="utf-8"))


def detected(data: Path) -> list[dict[str, Any]]:
    """How well a small network tells filled pixels of CIFAR-10, by candidate."""
    dataset = parquet(path=str(data / "cifar10" / "cifar10_test_lossless.parquet"))
    batch = dataset.batch(dataset.ids[-DETECTED:], Preprocess(32, PIXELS), pixels=PIXELS)
    return [
        {"units": u, "fill": f, "area": detectability(batch, UNITS[u], FILLS[f])}
        for u in UNITS
        for f in FILLS
    ]


def main() -> None:
    """Run what is missing, print the tables, write them and the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("defaults-run"))
    parser.add_argument("--samples", type=int, default=24)
    given = parser.parse_args()
    seeded()
    found = study(given.data, given.out, given.samples)
    text = page(found)
    (given.out / "defaults.md").write_text(text, encoding="utf-8")
    (given.out / "defaults.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
