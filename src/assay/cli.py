"""The command line: run, demo, explain, list, report, claims, check, trust, doctor, new."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from assay.commands.listing import KINDS, print_entries, print_methods, rows_of
from assay.commands.printing import (
    forecast_table,
    print_answer,
    print_failures,
    print_inputs,
    print_not_applicable,
    print_promises,
)
from assay.errors import InputError, NotApplicable, PrerequisiteError, unknown
from assay.suite.from_options import METHODS, PROTOCOLS, own_suite

app = typer.Typer(
    help="Which feature-attribution method can you trust, for this model and this data?",
    epilog="Begin with `assay demo`, then `assay run --model ... --data ...` on your own network.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
MISTAKE, FAILED, INTERRUPTED = 2, 3, 130  # exit codes; FAILED: finished, but some cell failed

OutOption = Annotated[
    Path, typer.Option("--out", help="The run's folder; an earlier run there is continued.")
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, help="Processes, one thread each.")]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="Where the networks run, e.g. cuda.")
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="At most this many samples a dataset, over all classes."),
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="Take fewer samples, then fewer steps, to fit 10min, 2h ..."),
]
DryOption = Annotated[
    bool, typer.Option("--dry-run", help="Say how many forward passes and what time; run nothing.")
]
BatchOption = Annotated[
    int | None, typer.Option("--micro-batch", min=1, help="Inputs per call of a network.")
]
ModelHelp = "A name, ./file.py:factory, hf:FOLDER, timm:NAME or torchvision:NAME."
WeightsOption = Annotated[
    str | None, typer.Option(help="The model's weights: .safetensors, or a checkpoint of tensors.")
]
SizeOption = Annotated[
    int | None, typer.Option(min=1, help="Pixels a side of the input; needs --mean and --std.")
]
ResizeOption = Annotated[
    int | None, typer.Option(min=1, help="Shorter side of an image before the crop to --size.")
]
MeanOption = Annotated[
    str | None, typer.Option(help="Subtracted from pixels in [0, 1], one per channel: .5,.5,.5.")
]
StdOption = Annotated[
    str | None, typer.Option(help="What they are then divided by, one per channel.")
]


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="The version, and nothing else.")] = False,
) -> None:
    """Which feature-attribution method can you trust, for this model and this data?"""
    if show:
        from assay import __version__

        console.print(__version__)
        raise typer.Exit


@app.command()
def run(
    suite: Annotated[str | None, typer.Argument(help="A suite's name or a YAML file.")] = None,
    out: OutOption = Path("assay-run"),
    workers: WorkersOption = 1,
    device: DeviceOption = None,
    limit: LimitOption = None,
    budget: BudgetOption = None,
    micro_batch: BatchOption = None,
    dry_run: DryOption = False,
    maps: Annotated[bool, typer.Option(help="Store the maps.")] = True,
    model: Annotated[str | None, typer.Option(help=ModelHelp)] = None,
    weights: WeightsOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A folder with one folder of images per class, a .csv, .tsv, .jsonl or .parquet "
            "file, a folder of Hugging Face's save_to_disk, or a name."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names, ./file.py:function, or maps in a .npy, .npz or .safetensors, by commas. "
            f"Else {METHODS.replace(',', ', ')}."
        ),
    ] = None,
    protocols: Annotated[
        str | None,
        typer.Option(
            help=f"Names or ./file.py:function, by commas. Else {PROTOCOLS.replace(',', ', ')}."
        ),
    ] = None,
    size: SizeOption = None,
    resize: ResizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Names of the classes in the order of the outputs, by commas."),
    ] = None,
    target: Annotated[
        str, typer.Option(help="The class explained: label, predicted, or its number or name.")
    ] = "label",
) -> None:
    """Run a suite, or a model and data of your own; run it again to continue where it stopped."""
    from assay.suite.spec import read_suite

    told = {
        "model": model, "weights": weights, "data": data, "methods": methods, "size": size,
        "protocols": protocols, "resize": resize, "mean": mean, "std": std, "classes": classes,
    }  # fmt: skip
    if suite is None:
        spec = own_suite(told, target)
    elif any(value is not None for value in told.values()):
        extra = next(name for name, value in told.items() if value is not None)
        raise InputError(f"Expected a suite or `--{extra}`, not both: the suite says it.")
    else:
        spec = read_suite(suite)
    if limit is not None:
        spec = spec.model_copy(update={"limit": limit})
    if budget is not None:
        from assay.run.budget import fit

        spec, said = fit(spec, out, budget, workers=workers, device=device, micro_batch=micro_batch)
        console.print(said, markup=False, highlight=False, soft_wrap=True)
    _run(spec, out, workers, device, micro_batch, dry_run, maps)


@app.command()
def demo(
    out: OutOption = Path("assay-demo"),
    workers: WorkersOption = 2,
    device: DeviceOption = None,
    limit: LimitOption = None,
    budget: BudgetOption = None,
    dry_run: DryOption = False,
) -> None:
    """A real network, real photographs: which method is faithful? A page in minutes."""
    run("demo", out, workers, device, limit, budget, dry_run=dry_run)


@app.command()
def explain(
    image: Annotated[
        str, typer.Argument(help="An image file; for a model of texts the text itself.")
    ],
    model: Annotated[str, typer.Option(help=ModelHelp)],
    method: Annotated[
        str | None,
        typer.Option(help="A name or address; else gradcam, or for texts integrated_gradients."),
    ] = None,
    best: Annotated[
        Path | None, typer.Option(help="A run's folder: take the method it placed first.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="What is written; else explanation.png or .html."),
    ] = None,
    target: Annotated[
        int | None, typer.Option(min=0, help="The number of the class explained; else predicted.")
    ] = None,
    weights: WeightsOption = None,
    size: SizeOption = None,
    resize: ResizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
) -> None:
    """One method's map over one picture or text: red speaks for the class, blue against it."""
    from assay.commands.explaining import explain_one

    described = {"weights": weights, "size": size, "resize": resize, "mean": mean, "std": std}
    explain_one(console, image, model, method, best, output, target, described)


def _run(
    spec: Any,
    out: Path,
    workers: int,
    device: str | None,
    micro_batch: int | None,
    dry_run: bool,
    maps: bool,
) -> None:
    from assay.run import suite_run as engine

    if dry_run:
        found = engine.dry_run(spec, out, workers=workers, device=device, micro_batch=micro_batch)
        console.print(forecast_table(found))
        return

    try:
        results = engine.run(
            spec, out, workers=workers, device=device, micro_batch=micro_batch, keep_maps=maps,
            clean=lambda manifest: print_inputs(console, manifest),
        )  # fmt: skip
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped. The same command goes on where it stopped.")
        raise SystemExit(INTERRUPTED) from None
    print_answer(console, results)
    print_promises(console, results)
    print_not_applicable(console, results)
    page = results.report()
    console.print(f"The page: {page}", markup=False, soft_wrap=True)
    failures = results.failures
    if failures:
        print_failures(console, failures)
        raise typer.Exit(FAILED)


@app.command("list")
def list_plugins(
    what: Annotated[str, typer.Argument(help=f"{', '.join([*KINDS, 'suites'])}.")],
    names: Annotated[
        list[str] | None, typer.Argument(help="Only these, with what each does and its options.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """What there is. Of methods: family, citation, needs, and passes forward and backward."""
    if what not in (*KINDS, "suites"):
        raise unknown("list", what, [*KINDS, "suites"])
    rows = rows_of(what, names or ())
    if as_json:
        print(json.dumps(rows, indent=1))
    elif what == "methods" and not names:
        print_methods(console, rows)
    else:
        print_entries(console, rows)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The HTML file.")] = None,
) -> None:
    """Write the page of a run again."""
    from assay.results import load

    console.print(f"The page: {load(folder).report(output)}", markup=False, soft_wrap=True)


@app.command()
def claims(
    paper: Annotated[
        str | None, typer.Option(help="Only one paper's: m4, soco, attributionlab.")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", help="Run a claim, soco.12, or all of a paper, soco.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="For --run: the folder with cifar10/ and weights/.")
    ] = None,
    out: OutOption = Path("assay-claims"),
    n: Annotated[int | None, typer.Option(min=2, help="Images; else as many as usual.")] = None,
    trials: Annotated[
        int | None, typer.Option(min=2, help="Synthetic draws; half as many networks; else 20.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random; else 0.")] = None,
    device: DeviceOption = None,
    workers: WorkersOption = 1,
    micro_batch: BatchOption = None,
    dry_run: DryOption = False,
) -> None:
    """What the literature claims, and what came out when it was tried."""
    from assay.commands.claims import print_rows, rows_of, run_claims

    if run_id is None:
        return print_rows(console, rows_of(paper), as_json)
    if paper is not None:
        raise InputError("Expected `--paper` or `--run`, not both: the claim says its paper.")
    how = {
        "n": n, "trials": trials, "seed": seed, "device": device, "workers": workers,
        "micro_batch": micro_batch,
    }  # fmt: skip
    run_claims(console, run_id, data, out, dry_run=dry_run, as_json=as_json, **how)


@app.command()
def check(
    methods: Annotated[
        list[str] | None,
        typer.Argument(help="Names or ./file.py:function, by blanks or commas; else a few."),
    ] = None,
    gamma: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The F1 below which a method is refuted.")
    ] = 0.5,
    samples: Annotated[int, typer.Option(min=2, help="Images of each environment.")] = 10,
    sizes: Annotated[str, typer.Option(help="Sides of the images in pixels, by commas.")] = "32,64",
    pictures: Annotated[
        Path, typer.Option(help="A folder for a picture of each refuted method.")
    ] = Path("assay-check"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs; no pictures.")] = False,
    workers: WorkersOption = 1,
) -> None:
    """The faithfulness test: is a method refuted by a network whose true attribution is known?"""
    from assay.commands.check import check_methods

    check_methods(
        console, methods or (), gamma=gamma, samples=samples, sizes=sizes,
        pictures=None if as_json else pictures, as_json=as_json, workers=workers,
    )  # fmt: skip


@app.command()
def trust(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs where truth is known.")],
    truth: Annotated[str | None, typer.Option(help="The protocol that knows it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Can a metric be trusted? How far each orders the methods as the truth does."""
    from assay.commands.trust import print_trust

    print_trust(console, folders, truth, as_json)


@app.command()
def doctor(
    name: Annotated[
        str | None,
        typer.Argument(help="A method, protocol or environment: its name, or ./file.py:object."),
    ] = None,
) -> None:
    """This machine's setup; or, with a name, whether that plug-in keeps the rules."""
    if name is None:
        from assay.commands.machine import print_environment

        return print_environment(console)
    from assay.conformance import examine, say_before

    failed = checked = 0
    findings = examine(name)
    if before := say_before(name):
        console.print(before, style="dim", markup=False, highlight=False, soft_wrap=True)
    for finding in findings:
        checked += finding.status.strip() != "n/a"
        why = f": {finding.reason}" if finding.reason else ""
        line = f"{finding.status:6}  {finding.check}{why}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
        failed += finding.failed
    if not checked:
        console.print("Nothing could be checked: it applies to none of the small worlds.")
    if failed or not checked:
        raise typer.Exit(FAILED)


@app.command()
def new(
    kind: Annotated[str, typer.Argument(help="method, protocol, model or environment.")],
    name: Annotated[str, typer.Argument(help="The name of the file, function and plug-in.")],
    out: Annotated[Path, typer.Option("--out", help="The folder.")] = Path(),
) -> None:
    """Write a plug-in's file and its test, ready to run and to fill in."""
    from assay.plugins.scaffold import next_steps, write_plugin

    files = write_plugin(kind, name, out)
    for line in (f"Written: {files[0]} and {files[1]}. Next:", *next_steps(kind, *files)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """The entry point: mistakes of use are said in one line, without a traceback."""
    try:
        app()
    except (InputError, PrerequisiteError, NotApplicable) as error:
        text = f"[red]assay:[/red] {escape(str(error))}"
        Console(stderr=True).print(text, highlight=False, soft_wrap=True)
        raise SystemExit(MISTAKE) from None


if __name__ == "__main__":
    main()
