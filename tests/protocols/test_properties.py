"""The four properties that every protocol declares (IDSDS, Table 1)."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import assay
from assay.plugins import registry
from assay.plugins.properties import UNDECLARED, Properties
from assay.store import ProtocolEntry

BUILT_IN = [p for p in registry.everything("protocol") if not p.own]

# Rows of the paper's table: domain alignment, no leakage, inter-model comparison, natural data.
PAPER = {
    "incremental_deletion": (False, None, False, True),
    "single_deletion": (False, None, True, True),
    "in_domain_single_deletion": (True, True, True, True),
    "roar": (True, False, False, True),
    "part_deletion": (True, True, True, False),
}


@pytest.mark.parametrize("plugin", BUILT_IN, ids=lambda plugin: plugin.name)
def test_every_protocol_declares_its_properties(plugin: registry.Protocol) -> None:
    properties = plugin.guarantees(plugin.defaults)
    assert properties.reason != UNDECLARED.reason
    assert len(properties.reason.split()) <= 25
    if plugin.name in PAPER:
        four = [v for name, v in properties.to_json().items() if name != "reason"]
        assert tuple(four) == PAPER[plugin.name]


def test_a_protocol_that_declares_nothing_may_not_compare_models() -> None:
    @registry.protocol("silent_for_this_test")
    def silent(case: assay.Case) -> assay.Scores:
        """Nothing."""
        return assay.Scores(case.attribution.flatten(1).sum(1))

    plugin = vars(silent)["__assay__"]
    del registry._REGISTERED["protocol"]["silent_for_this_test"]
    assert not plugin.guarantees({}).inter_model


def test_probabilities_may_not_compare_models() -> None:
    plugin = registry.get("protocol", "single_deletion")
    for output in ("probability", "log_odds"):
        assert not plugin.guarantees({**plugin.defaults, "output": output}).inter_model
    assert plugin.guarantees(plugin.defaults).inter_model


def test_old_manifests_have_no_properties_and_new_ones_keep_theirs() -> None:
    assert ProtocolEntry.from_json({"name": "deletion"}).properties == {}
    assert "properties" not in ProtocolEntry(name="deletion").to_json()
    stored = ProtocolEntry(name="x", properties=Properties(inter_model=True).to_json()).to_json()
    assert ProtocolEntry.from_json(stored).properties["inter_model"] is True


class Scaled(nn.Module):
    """A network whose logits are multiplied by a constant: another calibration."""

    def __init__(self, net: nn.Module, scale: float) -> None:
        """Wrap a network."""
        super().__init__()
        self.net, self.scale = net, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits times the scale."""
        return self.scale * self.net(x)


def test_the_declared_reason_is_true_for_logits_and_for_probabilities() -> None:
    """Scores of the same maps: no scale changes the ranks of logits; it changes the others."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4)).eval()
    x, y = torch.randn(12, 3, 8, 8), torch.randint(0, 4, (12,))
    maps = torch.randn(12, 8, 8)

    def scores(scale: float, protocol: str, **options: object) -> np.ndarray:
        return assay.score(Scaled(net, scale), x, y, maps, protocol, **options).numpy()

    for name in ("single_deletion", "incremental_deletion", "deletion", "infidelity"):
        plugin = registry.get("protocol", name)
        same = np.allclose(scores(1.0, name), scores(8.0, name), atol=1e-9)
        assert same == plugin.guarantees(plugin.defaults).inter_model, name
    changed = {"output": "probability"}
    assert not np.allclose(
        scores(1.0, "single_deletion", **changed), scores(8.0, "single_deletion", **changed)
    )
    cells = maps.reshape(12, 4, 2, 4, 2).sum((2, 4)).flatten(1).numpy()
    drops = []
    with torch.no_grad():
        clean = net(x).gather(1, y[:, None])[:, 0]
        for cell in range(16):
            changed_x = x.clone()
            row, column = divmod(cell, 4)
            changed_x[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 0
            drops.append(clean - net(changed_x).gather(1, y[:, None])[:, 0])
    by_hand = torch.stack(drops, 1).numpy()
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(cells, by_hand, strict=True)]
    assert np.allclose(scores(3.0, "single_deletion"), expected, atol=1e-6)
