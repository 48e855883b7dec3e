"""The closed forms of the modulo curves against the network itself, pixel by pixel."""

import pytest
import torch

import assay


@torch.no_grad()
@pytest.mark.parametrize("method", ["random", "truth"])
def test_insertion_and_deletion_are_what_the_network_shows(method):
    """A step is right where the answer changes; the curve is the right steps over all there are."""
    env = assay.environment("single_color_modulo", size=24)
    batch = env.batch(4)
    maps = torch.rand(batch.truth.shape, generator=torch.Generator().manual_seed(0))
    maps = maps + batch.truth if method == "truth" else maps
    for protocol, start in (("modulo_deletion", batch.inputs), ("modulo_insertion", None)):
        for b in range(4):
            order = maps[b].flatten().argsort(descending=True)
            image = batch.inputs[b].flatten().clone() if start is not None else torch.zeros(24 * 24)
            images = [image.clone()]
            for pixel in order:
                image[pixel] = 0 if start is not None else batch.inputs[b].flatten()[pixel]
                images.append(image.clone())
            answers = env.net(torch.stack(images).reshape(-1, 1, 24, 24))[:, 0]
            right = (answers.diff() != 0).double().cumsum(0) / batch.truth[b].sum()
            curve = torch.cat([torch.zeros(1), right])
            area = float(torch.trapezoid(curve, dx=1 / len(order)))
            expected = 1 - area if protocol == "modulo_deletion" else area
            scored = assay.score(env.model, env.draw(4, 0), None, maps, protocol)[b]
            assert float(scored) == pytest.approx(expected, abs=1e-6)
