"""`assay finetune`: a network learns that a cell may be missing, and is scored if asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands.arguments import (
    MODEL_HELP,
    DeviceOption,
    MeanOption,
    ResizeOption,
    SizeOption,
    StdOption,
    WeightsOption,
    WorkersOption,
)
from assay.commands.run import run_spec
from assay.commands.terminal import INTERRUPTED, console, say, say_error
from assay.commands.tuned_tables import AFTER, BEFORE, IDSDS, print_card, print_scores
from assay.errors import InputError
from assay.suite.defaults import FILL, IN_DOMAIN_METHODS, IN_DOMAIN_PROTOCOLS

if TYPE_CHECKING:
    from torch import Tensor

    from assay.plugins.option_types import Item
    from assay.results import Results
    from assay.suite.from_options import ModelOptions
    from assay.suite.spec import Spec
    from assay.types import Dataset, Model

DATA_HELP = "a dataset's name, a folder with one subfolder of images per class, or a .parquet file"


def finetune(
    model: Annotated[str, typer.Option(help=MODEL_HELP)],
    data: Annotated[str, typer.Option(help=f"What to train on: {DATA_HELP}.")],
    out: Annotated[
        Path, typer.Option(help="The folder for weights.safetensors, card.json and the run.")
    ] = Path("assay-finetune"),
    weights: WeightsOption = None,
    grid: Annotated[int, typer.Option(min=2, help="Cells per side of the image.")] = 4,
    fill: Annotated[
        str, typer.Option(help="What replaces a cell: zero, uniform, 'blur(sigma=5)', ...")
    ] = FILL,
    probability: Annotated[
        float, typer.Option(help="The share of the images that lose a cell; IDSDS needs 0.5.")
    ] = 0.5,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="By default 30 from 100,000 images on, otherwise 5.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images per step.")] = None,
    augment: Annotated[
        bool, typer.Option(help="Move images by up to an eighth of the side and mirror half.")
    ] = True,
    seed: Annotated[int, typer.Option(help="The seed of order, crops and cells.")] = 0,
    placebo: Annotated[
        bool, typer.Option("--placebo", help="Also train without removing anything, and compare.")
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(help="Weights of the same network from another seed, to compare with."),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(help=f"What the card is measured on: {DATA_HELP}. By default a tenth of "
                     "--data is held out."),
    ] = None,
    score: Annotated[
        str | None, typer.Option(help=f"Then score methods on these other samples: {DATA_HELP}.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="The methods to score, separated by commas. By default those of the "
                     "IDSDS study that apply, and controls."),
    ] = None,
    before: Annotated[
        bool, typer.Option(help="With --score: also score the network as it was.")
    ] = True,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many samples to measure and to score.")
    ] = None,
    score_limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many to score. By default --limit.")
    ] = None,
    train_limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many samples of --data.")
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Round the weights to half precision.")
    ] = False,
    device: DeviceOption = None,
    workers: WorkersOption = 1,
    size: SizeOption = None,
    resize: ResizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    classes: Annotated[
        str | None,
        typer.Option(help="The names of the classes in the model's order, separated by commas."),
    ] = None,
) -> None:  # fmt: skip
    """Fine-tune a network on images without one cell, for in-domain single deletion (IDSDS).

    Run it again to continue after an interruption, or to print the card.
    """
    from assay.plan.resolving import build_one
    from assay.suite.from_options import ModelOptions, model_item, plugin_item
    from assay.training.fine_tuning import FineTuning
    from assay.training.tuned_folder import TunedFolder

    described = ModelOptions(weights, size, resize, mean, std, classes)
    _check_scoring(score, methods, described)
    folder, cell = TunedFolder(out), plugin_item(fill)
    folder.claim(
        {
            "model": model, "data": data, "measure": measure, "grid": grid, "fill": cell,
            "probability": probability, "epochs": epochs, "rate": rate, "batch": batch,
            "augment": augment, "seed": seed, "limit": limit, "train_limit": train_limit,
            "half": half, **vars(described),
        }
    )  # fmt: skip
    card = None if folder.missing(placebo=placebo, seeds=seeds is not None) else folder.card
    other = None
    if seeds is not None:
        other = build_one("model", model_item(model, replace(described, weights=seeds)))
    if card is None or score is not None or other is not None:
        network = build_one("model", model_item(model, described))
        folder.check(network, other)
    if card is not None:
        if score is not None:
            _check_apart(score, described, network, card.training_hashes, score_limit or limit)
        say(f"Already finished: {folder.path}")
    else:
        task = FineTuning.of(
            network, _samples(data, described), grid=grid, fill=cell, device=device,
            measure=None if measure is None else _samples(measure, described),
            limit=train_limit, measure_limit=limit,
        )  # fmt: skip
        if score is not None:
            _check_apart(score, described, network, task.training.hashes, score_limit or limit)
        try:
            card = folder.fill(
                task, task.recipe(epochs=epochs, rate=rate, batch=batch, augment=augment),
                probability=probability, seed=seed, half=half, placebo=placebo,
                seeds=other,
            )  # fmt: skip
        except KeyboardInterrupt as stop:
            say_error("Stopped. Run the same command again to continue after the last epoch.")
            raise typer.Exit(getattr(stop, "code", INTERRUPTED)) from None
    print_card(card, folder)
    if score is not None:
        tuned = replace(described, weights=str(folder.weights), card=str(folder.card_file))
        networks = {AFTER: model_item(model, tuned)}
        if before:
            networks[BEFORE] = model_item(model, described)
        options = {"grid": grid, "fill": cell}
        spec = _suite(networks, _item(score, described), methods, options)
        run_spec(spec, folder.path / "run", workers, device, score_limit or limit, show=_show)


def _item(data: str, described: ModelOptions) -> Item:
    from assay.suite.from_options import dataset_item

    names = described.classes
    return dataset_item(data, None if names is None else names.split(","))


def _samples(data: str, described: ModelOptions) -> Dataset:
    from assay.plan.resolving import build_one

    dataset: Dataset = build_one("dataset", _item(data, described))
    return dataset


def _check_scoring(score: str | None, methods: str | None, described: ModelOptions) -> None:
    """Report wrong names of methods or scored samples before anything is trained."""
    from assay.suite.from_options import method_item
    from assay.suite.spec import choose

    if score is None and methods is not None:
        raise InputError("Expected `--score` with `--methods`: only scoring uses them.")
    if methods is not None:
        choose("method", [method_item(name) for name in methods.split(",")])
    if score is not None:
        _samples(score, described)


def _check_apart(
    score: str, described: ModelOptions, network: Model, training: Tensor | None, limit: int | None
) -> None:
    """Reject samples to score that the network is fine-tuned on, where these are known."""
    from assay.plan.trained_on import check_scored

    if training is not None:
        check_scored(_samples(score, described), network, training, limit)


def _show(results: Results) -> None:
    """Print the scores, and what does not apply but for what only a fine-tuned network has."""
    from assay.commands.printing import print_not_applicable

    print_scores(results)
    in_domain = {n for n, p in results.entries.protocols.items() if p.name == IDSDS}
    unexpected = [
        cell
        for cell in results.not_applicable
        if cell["model"] != BEFORE or cell["protocol"] not in in_domain
    ]
    print_not_applicable(console, unexpected, results.entries)
    if len(unexpected) < len(results.not_applicable):
        say("IDSDS is a score of the fine-tuned network only.", style="dim")


def _suite(
    networks: dict[str, Item], data: Item, methods: str | None, options: Mapping[str, object]
) -> Spec:
    """The suite that scores the fine-tuned network, and the one it was made from."""
    from assay.plan.applicable import only_applicable
    from assay.plugins.registry import pick
    from assay.suite.from_options import method_item
    from assay.suite.spec import make_suite

    named = [(label, *pick(item)) for label, item in networks.items()]
    chosen = IN_DOMAIN_METHODS if methods is None else map(method_item, methods.split(","))
    spec = make_suite(
        {
            "datasets": [data],
            "models": [{name: {**own, "as": label}} for label, name, own in named],
            "methods": list(chosen),
            "protocols": [{name: options} for name in IN_DOMAIN_PROTOCOLS],
        },
        "the command",
    )
    if methods is not None:
        return spec
    first = spec.model_copy(update={"models": spec.models[:1]})
    applicable = only_applicable(first, methods=True, protocols=False).methods
    return spec.model_copy(update={"methods": applicable})
