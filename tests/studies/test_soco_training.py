"""SoCo's claims that train networks: what is removed, what a network learns from it, who wins."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.data.memory import as_dataset
from assay.errors import InputError, PrerequisiteError
from assay.plugins import registry
from assay.studies.planting import planted
from assay.studies.setting import Study, run_study
from assay.studies.soco import masks as soco_masks
from assay.studies.soco import networks as soco_networks
from assay.studies.soco import semi_natural as soco_semi_natural
from assay.training import epochs
from assay.training.epochs import accuracy, train_epochs
from assay.training.trained_weights import TrainedWeights
from assay.types import Model

CLASSES = 4


@registry.dataset("labelled_noise")
def labelled_noise(*, seed: int = 0, samples: int = 480):
    """Noise whose labels say nothing about it."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(samples, 3, 16, 16, generator=generator)
    return as_dataset((images, torch.arange(samples) % CLASSES))


@pytest.fixture
def study(tmp_path, monkeypatch):
    for name, value in {"SIZE": 16, "WIDTH": 8, "EPOCHS": 12, "BATCH": 32}.items():
        monkeypatch.setattr(soco_networks, name, value)
    test = {"labelled_noise": {"seed": 1}}
    return Study(test, {"unused": None}, tmp_path, n=80, trials=2, training=["labelled_noise"])


def test_the_strategies_remove_what_they_say():
    disc, both, place = (s(32, 10) for s in soco_networks.STRATEGIES.values())
    assert disc.flatten(1).sum(1).tolist() == both.flatten(1).sum(1).tolist() == [717] * 10
    assert place.flatten(1).sum(1).tolist() == [51] * 10
    assert bool((disc == disc[0]).all())
    assert len({tuple(mask.flatten().tolist()) for mask in both}) == 10
    at = torch.arange(32) - 15.5
    far = torch.hypot(at[:, None], at[None, :])
    assert float(far[disc[0]].max()) <= float(far[~disc[0]].min())
    for label in range(10):
        row, column = soco_masks.place(label, 32)
        assert 3 in (row, column) or 27 in (row, column)
        assert bool(both[label, row, column])
        assert bool(place[label, row, column])


def test_the_network_is_the_papers():
    net = soco_networks.resnet8().net
    assert sum(p.numel() for p in net.parameters()) == 1_227_594
    weighted = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    assert len([m for m in weighted if getattr(m, "kernel_size", None) != (1, 1)]) == 8


def test_training_learns_and_is_the_same_again():
    inputs = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    labels = (inputs[:, 0] > 0).long()

    def trained(epochs):
        torch.manual_seed(0)
        model = Model(torch.nn.Linear(5, 2))
        train_epochs(model, inputs, labels, epochs=epochs, batch=50, rate=0.05, progress=False)
        return model

    assert accuracy(trained(10), inputs, labels) > 0.95
    once, again = (trained(2).net.weight for _ in range(2))
    assert torch.equal(once, again)


def test_the_best_epoch_is_kept(monkeypatch):
    """With a rate this high the last epoch is not the best."""
    inputs = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    labels = (inputs[:, 0] > 0.5).long()
    seen = []

    def watched(*told):
        seen.append(accuracy(*told))
        return seen[-1]

    monkeypatch.setattr(epochs, "accuracy", watched)
    torch.manual_seed(0)
    model = Model(torch.nn.Linear(5, 2))
    train_epochs(model, inputs, labels, epochs=9, batch=10, rate=30.0, progress=False)
    assert seen[-1] < max(seen)
    chose = torch.randperm(400, generator=torch.Generator().manual_seed(0))[:50]
    assert accuracy(model, inputs[chose], labels[chose]) == max(seen)


def test_a_network_learns_from_the_place_of_what_is_removed(study):
    """The images are noise: only the place can tell the class, so nothing else can be learned."""
    (row,), _ = run_study("soco.1", study)
    images, labels = soco_networks.test_images(study)
    training, _, _ = soco_networks.training_images(study)
    right = {}
    for strategy in ("disc", "disc and place"):
        shown = soco_networks.perturbed(strategy, images, labels, training)
        right[strategy] = accuracy(soco_networks.trained(study, strategy, 0), shown, labels)
    assert right["disc and place"] > 0.9
    assert right["disc"] < 0.5
    assert "by the place alone" in row.note
    assert (row.n, row.setting, row.verdict) == (2, "scaled", "to be run again")


def test_whole_images_are_asked_of_both_networks(study):
    (row,), _ = run_study("soco.2", study)
    images, labels = soco_networks.test_images(study)
    found = [
        accuracy(soco_networks.trained(study, None, seed), images, labels)
        - accuracy(soco_networks.trained(study, "place", seed), images, labels)
        for seed in (0, 1)
    ]
    assert row.value == pytest.approx(np.mean(found))


def test_training_images_are_asked_for(tmp_path):
    study = Study("labelled_noise", {"unused": None}, tmp_path)
    with pytest.raises(PrerequisiteError, match="lossless training images"):
        run_study("soco.1", study)


def test_training_images_may_not_be_there_twice(study):
    twice = ["labelled_noise", {"labelled_noise": {"samples": 120}}]
    with pytest.raises(InputError, match="120 duplicates among 600"):
        soco_networks.training_images(replace(study, training=twice))


def test_other_removals_are_trained_anew(study, monkeypatch):
    """Weights are known by what was removed, not by its name."""
    monkeypatch.setattr(soco_networks, "EPOCHS", 1)
    kept = study.out / "retrained"
    soco_networks.trained(study, "place", 0)
    soco_networks.trained(study, "place", 0)
    assert len(list(kept.iterdir())) == 1
    monkeypatch.setattr(soco_masks, "LITTLE", 0.2)
    soco_networks.trained(study, "place", 0)
    assert len(list(kept.iterdir())) == 2


def test_a_study_trains_a_network_once(study, monkeypatch):
    """Its claims share one store; a new study of the same folder reads the files."""
    monkeypatch.setattr(soco_networks, "EPOCHS", 1)
    first = soco_networks.trained(study, "place", 0)

    def never(*args, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr(soco_networks, "train_epochs", never)
    smaller = replace(study, n=8)
    new = replace(study, trained=TrainedWeights())
    assert soco_networks.trained(new, "place", 0).weights_hash == first.weights_hash
    (file,) = (study.out / "retrained").iterdir()
    file.unlink()
    assert soco_networks.trained(smaller, "place", 0).weights_hash == first.weights_hash
    file.unlink()
    with pytest.raises(AssertionError, match="trained again"):
        soco_networks.trained(replace(study, trained=TrainedWeights()), "place", 0)


def test_there_are_twelve_places():
    with pytest.raises(InputError, match="at most 12 classes"):
        soco_masks.place_only(32, 13)


# Scores of twelve networks, lower is better: as the paper says, the other way round, and ties.
AGREE, OPPOSE = np.tile([0.1, 0.2, 0.3, 0.4], (12, 1)), np.tile([0.4, 0.3, 0.2, 0.1], (12, 1))


@pytest.mark.parametrize(
    ("natural", "synthetic", "resembles", "differs"),
    [(OPPOSE, AGREE, "holds", "holds"), (AGREE, OPPOSE, *["does not carry over"] * 2)],
)
def test_verdicts_follow_from_the_ranks(natural, synthetic, resembles, differs, study, monkeypatch):
    scores = {"natural": natural, "semi-natural": AGREE, "synthetic": synthetic}
    monkeypatch.setattr(soco_semi_natural, "by_road", lambda study: scores)
    for name, verdict in {"soco.4": differs, "soco.17": resembles}.items():
        (row,), _ = run_study(name, study)
        assert (row.verdict, row.n) == (verdict, 12)


def test_networks_whose_methods_tie_are_left_out():
    """Equal answers tie whatever their sums' last digits are; what ranks nothing is no evidence."""
    tied = np.array([[0.1, 0.1, 0.1, 0.1 + 1e-15]])
    scores = {kind: np.concatenate([AGREE, tied]) for kind in soco_semi_natural.KINDS}
    found, said = soco_semi_natural.ranked(scores)
    assert {len(rows) for rows in found.values()} == {12}
    assert "1 of 13 networks" in said
    assert soco_semi_natural.alike(found, "natural", "synthetic") == pytest.approx(np.ones(12))


def test_semi_natural_claims_run(study, monkeypatch):
    study = replace(study, n=8)
    monkeypatch.setattr(soco_networks, "EPOCHS", 1)
    little = {"size": 16, "classes": 4, "train": 1024, "epochs": 2}
    asked = []

    def small(plant, study, **told):
        asked.append((plant, told["base"], told["net"]))
        return planted(plant, study, **{**told, "base": "blank", "net": None, **little})

    monkeypatch.setattr(soco_semi_natural, "planted", small)
    scores = soco_semi_natural.by_road(study)
    assert {kind: found.shape for kind, found in scores.items()} == dict.fromkeys(
        ("natural", "semi-natural", "synthetic"), (2, 4)
    )
    number = ("number_watermark", study.dataset, soco_networks.resnet8)
    blank = ("number_watermark", "blank", soco_networks.resnet8)
    assert asked == [number, number, blank, blank]
