"""Train the network of the environment `parts` with its defaults, and keep it as it is packaged.

    python -m benchmarks.train_parts --out src/assay/environments/parts.safetensors

One thread, so that the same machine gives the same weights; they are kept in half precision, and
what is measured of them is measured after that.
"""

import argparse
import functools
import time

import torch
from safetensors.torch import save_file

from assay.environments.parts import TRAINED, card, class_table, draw, train
from assay.training.trained_weights import TrainedWeights


def main() -> None:
    """Train, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    started, table = time.process_time(), class_table()
    net = train(table, TrainedWeights(), **TRAINED)
    print(f"trained in {time.process_time() - started:.0f} CPU seconds")
    halves = {
        name: value.half() if value.is_floating_point() else value
        for name, value in net.state_dict().items()
    }
    net.load_state_dict(halves)
    found = card(net, functools.partial(draw, table, TRAINED["size"]))
    save_file(halves, given.out, {name: repr(value) for name, value in found.items()})
    print(found)


if __name__ == "__main__":
    main()
