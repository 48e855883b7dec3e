"""`assay run`: a suite, or a model and data of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands.arguments import (
    MODEL_HELP,
    BatchOption,
    BudgetOption,
    CardOption,
    ControlsOption,
    DeviceOption,
    DryOption,
    LimitOption,
    MeanOption,
    OutOption,
    ResizeOption,
    SizeOption,
    StdOption,
    TimeoutOption,
    TrustOption,
    ValidateOption,
    WeightsOption,
    WorkersOption,
)
from assay.commands.terminal import FAILED, console, say, say_error
from assay.errors import InputError
from assay.processes import Stopped, stoppable
from assay.suite.defaults import METHODS, PROTOCOLS, in_words

if TYPE_CHECKING:
    from assay.results import Results
    from assay.suite.spec import Spec


def run(
    suite: Annotated[
        str | None,
        typer.Argument(
            help="A suite's name or a YAML file. One without models and data takes --model, --data."
        ),
    ] = None,
    out: OutOption = Path("assay-run"),
    workers: WorkersOption = 1,
    device: DeviceOption = None,
    limit: LimitOption = None,
    budget: BudgetOption = None,
    timeout: TimeoutOption = None,
    micro_batch: BatchOption = None,
    dry_run: DryOption = False,
    maps: Annotated[bool, typer.Option(help="Store the attribution maps.")] = True,
    model: Annotated[str | None, typer.Option(help=MODEL_HELP)] = None,
    weights: WeightsOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A dataset's name, a folder with one subfolder of images per class, or a .csv, "
            ".tsv, .jsonl or .parquet file. Also a folder written by Hugging Face's save_to_disk."
        ),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(help="Training samples, as --data, for protocols that train networks."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names, ./file.py:function, or .npy, .npz or .safetensors files of maps, "
            f"separated by commas. By default these, where they apply: {in_words(METHODS)}."
        ),
    ] = None,
    protocols: Annotated[
        str | None,
        typer.Option(
            help="Names or ./file.py:function, separated by commas. "
            "By default these, where they apply: "
            f"{in_words(PROTOCOLS)}."
        ),
    ] = None,
    size: SizeOption = None,
    resize: ResizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    classes: Annotated[
        str | None,
        typer.Option(help="The names of the classes in the model's order, separated by commas."),
    ] = None,
    card: CardOption = None,
    stochastic: Annotated[
        bool | None,
        typer.Option("--stochastic", help="Accept a model whose outputs differ for equal inputs."),
    ] = None,
    target: Annotated[
        str,
        typer.Option(help="The class to explain: label, predicted, or a class's number or name."),
    ] = "label",
    controls: ControlsOption = None,
    validate: ValidateOption = None,
    trust_code: TrustOption = False,
) -> None:
    """Run a suite, or your own model on your own data. Run it again to resume."""
    from assay.store import Store
    from assay.store.data_facts import DataFacts, knowing
    from assay.suite.from_options import ModelOptions, own_fields, own_suite
    from assay.suite.spec import explains_nothing, make_suite, suite_fields, suite_origin
    from assay.suite.written import with_fields

    described = ModelOptions(weights, size, resize, mean, std, classes, card, stochastic)
    facts = DataFacts.read(Store(out))
    if suite is None:
        from assay.plan.applicable import only_applicable

        spec = own_suite(model, data, described, methods, protocols, target, train)
        with knowing(facts):
            spec = only_applicable(spec, methods=methods is None, protocols=protocols is None)
    else:
        fields, where = suite_fields(suite)
        _refuse_beside_suite(methods=methods, protocols=protocols)
        if explains_nothing(fields):
            fields |= own_fields(model, data, described, train)
        else:
            _refuse_beside_suite(model=model, data=data, train=train, **vars(described))
        origin = suite_origin(suite).typing(model, data, train).trusting(trust_code)
        spec = make_suite(fields, where, origin)
    spec = with_fields(spec, controls, validate)
    with knowing(facts):
        run_spec(
            spec, out, workers, device, limit, budget, micro_batch, dry_run, maps, timeout=timeout
        )


def _refuse_beside_suite(**options: object) -> None:
    """A suite says everything that these options could say."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"Expected a suite or `--{name}`, not both: the suite contains it.")


def run_spec(
    spec: Spec,
    out: Path,
    workers: int = 1,
    device: str | None = None,
    limit: int | None = None,
    budget: str | None = None,
    micro_batch: int | None = None,
    dry_run: bool = False,
    maps: bool = True,
    show: Callable[[Results], None] | None = None,
    timeout: str | None = None,
) -> None:
    """Run a suite, or only count its passes, and print what came out.

    `show` prints the scores and what does not apply, by default the order of the methods.
    """
    from assay.store import Store
    from assay.store.data_facts import DataFacts, knowing

    try:
        with stoppable(), knowing(DataFacts.read(Store(out))):
            _run_spec(
                spec, out, workers, device, limit, budget, micro_batch, dry_run, maps, show, timeout
            )
    except Stopped as stop:
        resume = "" if dry_run else " Run the same command again to resume."
        say_error(f"Stopped.{resume}")
        raise typer.Exit(stop.code) from None


def _run_spec(
    spec: Spec,
    out: Path,
    workers: int,
    device: str | None,
    limit: int | None,
    budget: str | None,
    micro_batch: int | None,
    dry_run: bool,
    maps: bool,
    show: Callable[[Results], None] | None,
    timeout: str | None,
) -> None:
    from assay.commands.printing import (
        forecast_table,
        print_accuracy,
        print_failures,
        print_notes,
    )
    from assay.run import suite_run

    if limit is not None:
        spec = spec.model_copy(update={"limit": limit})
    trained = None  # what timing a suite trained is not trained again
    if budget is not None:
        from assay.run.budget import fit

        spec, message, trained = fit(
            spec, out, budget, workers=workers, device=device, micro_batch=micro_batch,
            timeout=timeout,
        )  # fmt: skip
        say(message)
    if dry_run:
        forecast = suite_run.dry_run(
            spec, out, workers=workers, device=device, micro_batch=micro_batch, trained=trained
        )
        console.print(forecast_table(forecast))
        return
    results = suite_run.run_suite(
        spec, out, workers=workers, device=device, micro_batch=micro_batch, keep_maps=maps,
        trained=trained, timeout=timeout, began=functools.partial(print_notes, console),
        clean=functools.partial(print_accuracy, console),
    )  # fmt: skip
    (show or _print_order)(results)
    say(f"The page: {results.report()}")
    if results.failures:
        print_failures(console, results.failures)
        raise typer.Exit(FAILED)


def _print_order(results: Results) -> None:
    from assay.commands.printing import (
        print_answer,
        print_not_applicable,
        print_promises,
        print_signals,
        print_unranked,
        print_validation,
    )

    print_answer(console, results)
    print_signals(console, results)
    print_validation(console, results)
    print_promises(console, results)
    print_unranked(console, results)
    print_not_applicable(console, results.not_applicable, results.entries)
