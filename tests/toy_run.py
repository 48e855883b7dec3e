"""A small run in a process of its own, for tests that kill it or spread it over workers."""

import argparse
import sys
import time

import torch
from torch import nn

import assay
from assay.plugins import registry
from assay.run import run
from assay.suite.spec import Spec
from assay.types import Batch, Dataset, Model, Sample

SIZE, SAMPLES = 8, 150


@registry.dataset("toy_images")
def toy_images(*, shuffle: int = 0) -> Dataset:
    """Random images; `shuffle` deals the samples in another order, each with its own id."""
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(SAMPLES, 3, SIZE, SIZE, generator=generator)
    y = torch.randint(0, 3, (SAMPLES,), generator=generator)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(shuffle)).tolist()
    ids = tuple(f"s{i:03d}" for i in (order if shuffle else range(SAMPLES)))

    def fetch(sample: str) -> Sample:
        i = int(sample[1:])
        return Sample(x[i], int(y[i]))

    return Dataset("toy_images", "image", ids, fetch, fingerprint="toy")


@registry.model("toy_net")
def toy_net() -> Model:
    """A convolution, a ragged hidden layer and a head."""
    torch.manual_seed(7)
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(180, 33),
        nn.ReLU(), nn.Linear(33, 3),
    )  # fmt: skip
    return Model(net.eval(), "toy_net", cam_layer="2")


@registry.method("slow_random", control="other")
def slow_random(model: Model, batch: Batch, *, pause: float = 0.2) -> torch.Tensor:
    """Noise that takes its time, so that a test can interrupt."""
    time.sleep(pause)
    return batch.draw("slow", batch.map_shape)


METHODS = [
    "saliency",
    {"integrated_gradients": {"steps": 5}},
    "gradcam",
    "random",
    {"shuffled": {"of": "saliency"}},
]
PROTOCOLS = [
    {"abpc": {"steps": 5}}, {"deletion": {"steps": 5}}, {"accuracy_morf": {"steps": 5}},
    "single_deletion", {"sensitivity_n": {"subsets": 5}}, {"infidelity": {"stride": 0.25}},
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--shuffle", type=int, default=0)
    parser.add_argument("--slow", action="store_true")
    given = parser.parse_args()
    methods = [*METHODS, "slow_random"] if given.slow else METHODS
    data = {"toy_images": {"shuffle": given.shuffle, "label": "toy_images"}}
    spec = Spec(datasets=[data], models=["toy_net"], methods=methods, protocols=PROTOCOLS)
    results = run(spec, given.out, workers=given.workers, progress=False)
    print(sum(c["forwards"] for c in results.cells if "forwards" in c))


if __name__ == "__main__":
    assert assay is not None
    sys.exit(main())
