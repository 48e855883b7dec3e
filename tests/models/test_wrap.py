"""Wrapping a network: what is taken over, and what is refused."""

from typing import Any

import pytest
import torch
from torch import nn

from assay.errors import InputError
from assay.models.wrap import model
from assay.types import Pixels, Preprocess


class Small(nn.Module):
    """A network with a nested layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.features(x).mean((2, 3)))
        return out


def test_a_plain_network() -> None:
    net = Small()
    wrapped = model(net)
    assert wrapped.net is net
    assert wrapped.name == "small"
    assert wrapped.pixels is None
    assert wrapped.has == {"gradients", "classes"}
    assert wrapped.logits(torch.ones(2, 3, 8, 8)).shape == (2, 5)
    assert model(wrapped) is wrapped


def test_all_options() -> None:
    net = Small()
    wrapped = model(
        net, mean=[0.1, 0.2, 0.3], std=0.5, classes=list("abcde"), cam_layer=net.features[1],
        output=lambda raw: raw[:, :2], name="mine",
    )  # fmt: skip
    assert wrapped.pixels == Pixels((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    assert wrapped.classes == ("a", "b", "c", "d", "e")
    assert wrapped.cam_layer == "features.1"
    assert wrapped.name == "mine"
    assert wrapped.logits(torch.ones(1, 3, 8, 8)).shape == (1, 2)


def test_numbers_for_one_channel_and_a_count_of_classes() -> None:
    wrapped = model(Small(), mean=0, std=1, classes=3, cam_layer="features")
    assert wrapped.pixels == Pixels((0.0,), (1.0,))
    assert wrapped.classes == ("0", "1", "2")
    assert wrapped.cam_layer == "features"


def test_prepare_says_what_the_pixels_are() -> None:
    prepare = Preprocess(32, Pixels((0.5,) * 3, (0.2,) * 3))
    assert model(Small(), prepare=prepare).pixels == prepare.pixels
    assert model(Small(), prepare=prepare, mean=0.5, std=[0.2] * 3).pixels == prepare.pixels


def test_size_mean_and_std_say_how_image_files_are_read() -> None:
    wrapped = model(Small(), size=32, resize=40, mean=0.5, std=[0.2] * 3)
    assert wrapped.prepare == Preprocess(32, Pixels((0.5,) * 3, (0.2,) * 3), resize=40)
    assert model(Small(), size=32, mean=0.5, std=0.2).pixels == wrapped.pixels


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mean": 0.5}, "`mean` without `std`"),
        ({"std": [0.5]}, "`std` without `mean`"),
        ({"mean": [0.5] * 3, "std": [0.5] * 2}, "one length, got 3 and 2"),
        ({"mean": 0.5, "std": [0.5, 0.0, 0.5]}, "above 0"),
        ({"mean": "grey", "std": 1}, "one number per channel, got 'grey'"),
        ({"mean": [], "std": 1}, "one number per channel"),
        ({"mean": float("nan"), "std": 1}, "one number per channel"),
        ({"classes": 0}, "to be a count of at most"),
        ({"classes": "abc"}, "to be a count of at most"),
        ({"cam_layer": "feature.1"}, "Did you mean `features.1`.*Its layers: features, head"),
        ({"cam_layer": nn.ReLU()}, "a ReLU that is not in it"),
        ({"cam_layer": 3}, "module or its name, got int"),
        ({"output": [1]}, "`output`.*got list"),
        ({"prepare": lambda image: image}, "a `Tokenize`, got function"),
        ({"size": 8}, "`mean` and `std` with `size`"),
        ({"resize": 8, "mean": 0.5, "std": 0.5}, "`size` with `resize`"),
        (
            {"size": 8, "mean": 0.5, "std": 1, "prepare": Preprocess(8, Pixels((0.5,), (1.0,)))},
            "`size` or `prepare`, not both",
        ),
        (
            {"mean": 0.1, "std": 1, "prepare": Preprocess(8, Pixels((0.2,), (1.0,)))},
            "those of `prepare`",
        ),
    ],
)
def test_wrong_options(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        model(Small(), **options)


@pytest.mark.parametrize(
    ("net", "says"),
    [
        (lambda x: x, "Expected a torch.nn.Module .*got function"),
        (Small, "got the class `Small` itself"),
        ("resnet18", "got str"),
    ],
)
def test_what_is_no_network(net: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        model(net)


def test_a_ready_model_takes_no_options() -> None:
    with pytest.raises(InputError, match="no `mean` for `small`, which is already a `Model`"):
        model(model(Small()), mean=0.5, std=0.5)
