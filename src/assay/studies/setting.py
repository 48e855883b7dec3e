"""The setting of a study (networks, data, number of samples), and how its claims are run."""

from __future__ import annotations

import argparse
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from assay import __version__
from assay.errors import InputError, PrerequisiteError
from assay.plan.forecast import Forecast
from assay.plugins.option_types import Item, Options
from assay.run import dry_run, run
from assay.studies.claim import Claim, ClaimRow, SettingKind
from assay.studies.published_claims import chosen, module_of, parse, write
from assay.studies.reading import Reading
from assay.suite.spec import Spec, make_suite
from assay.training.trained_weights import TrainedWeights

DEFAULTS = {"trials": 20, "seed": 0}  # options that a command need not give
OF_THE_MODULE = {"steps": 50, "resamples": 2000}  # only `python -m` has these options
IMAGENET = "efficientnet_lite0"
CIFAR = ("cifar_resnet20", "cifar_resnet56")  # one architecture at two depths


@dataclass(frozen=True)
class Study:
    """The setting of a paper's claims.

    Attributes:
        dataset: The dataset as a suite writes it; None where only synthetic claims are run.
        models: The networks as a suite writes them, by the name their rows get.
        out: The folder of the runs; one that holds earlier runs is continued.
        n: Samples of the dataset.
        trials: Draws of synthetic data; half as many networks of each kind are trained.
        seed: The seed of everything random.
        steps: Steps of integrated gradients; Extremal Perturbation takes 16 times as many.
        size: Pixels a side of designed images.
        pixels: Pixels a side of the dataset's images.
        others: Networks that only some claims need, in the form of `models`.
        training: The datasets that networks are trained on, as a suite writes them.
        resamples: Resamples of a bootstrap.
        device: Where the networks run.
        workers: Processes.
        micro_batch: Inputs per call of a network; chosen by default.
        setting: What dataset and networks are to the paper's own.
        trained: The weights of the networks that its claims train; no claim trains them again.
    """

    dataset: Item | None
    models: Mapping[str, Item]
    out: Path
    n: int = 5000
    trials: int = 20
    seed: int = 0
    steps: int = 50
    size: int = 224
    pixels: int | None = None
    resamples: int = 2000
    device: str | None = None
    workers: int = 1
    micro_batch: int | None = None
    setting: SettingKind = "stand-in"
    others: Mapping[str, Item] = field(default_factory=dict)
    training: Sequence[Item] = ()
    trained: TrainedWeights = field(default_factory=TrainedWeights, repr=False, compare=False)
    _read: dict[str, Reading] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse sizes that are too small for an interval."""
        for name in ("n", "trials", "steps", "resamples"):
            least = 1 if name == "steps" else 2
            if getattr(self, name) < least:
                raise InputError(
                    f"Expected `{name}` to be at least {least}, got {getattr(self, name)}."
                )

    @classmethod
    def cifar(cls, data: Path | None, out: Path, **how: Any) -> Study:
        """ResNet-20 and ResNet-56 on the test images of CIFAR-10, if `data` is given.

        Args:
            data: A folder with `cifar10/cifar10_test_lossless.parquet` and
                `weights/cifar10-resnet/cifar10_resnet20.safetensors`, `..56.safetensors`, and
                optionally `weights/small_vit/small_vit_cifar10.safetensors`; to train networks
                also `cifar10/*train*lossless.parquet`, one file or several.
            out: The folder of the runs.
            **how: Other fields of a study; None is the default.
        """
        if data is None:
            return cls(None, {}, out, **_chosen(how))
        how["pixels"] = 32
        images = data / "cifar10" / "cifar10_test_lossless.parquet"
        weights = {
            name: data / "weights" / "cifar10-resnet" / f"{name.replace('cifar_', 'cifar10_')}"
            ".safetensors"
            for name in CIFAR
        }
        _require_files(images, *weights.values())
        models = {name: {name: {"weights": str(path)}} for name, path in weights.items()}
        transformer = data / "weights" / "small_vit" / "small_vit_cifar10.safetensors"
        if transformer.is_file():
            how["others"] = {"small_vit": {"small_vit": {"weights": str(transformer)}}}
        training = sorted((data / "cifar10").glob("*train*lossless.parquet"))
        if how.get("training") is None:
            how["training"] = [{"parquet": {"path": str(path)}} for path in training]
        return cls({"parquet": {"path": str(images)}}, models, out, **_chosen(how))

    @classmethod
    def imagenet(cls, data: Path, out: Path, **how: Any) -> Study:
        """EfficientNet-Lite0 on a sample of ImageNet, probably images it was trained on.

        Args:
            data: A folder with `imagenet-sample/imagenet_sample_1000.parquet`.
            out: The folder of the runs.
            **how: Other fields of a study; None is the default.
        """
        images = data / "imagenet-sample" / "imagenet_sample_1000.parquet"
        _require_files(images)
        models = {"efficientnet_lite0": "efficientnet_lite0"}
        how["pixels"] = 224
        return cls({"parquet": {"path": str(images)}}, models, out, **_chosen(how))

    def suite(self, model: str, methods: Sequence[Item], protocols: Sequence[Item]) -> Spec:
        """The suite of one run."""
        return make_suite(
            {
                "datasets": [self.dataset],
                "models": [self.models[model]],
                "methods": list(methods),
                "protocols": list(protocols),
                "seeds": [self.seed],
                "controls": "off",
                "limit": self.n,
            }
        )

    def require_networks(self) -> None:
        """Raise an error if the study has no networks or no images."""
        if self.dataset is None or not self.models:
            raise PrerequisiteError(
                "This claim needs networks and images. Pass the folder that holds `cifar10/` and "
                "`weights/` with `--data`."
            )

    def read(self, part: str, model: str, suite: Spec) -> Reading:
        """The results of a part of the study; cells that are missing in its folder are run."""
        name = f"{part}-{model}"
        if name not in self._read:
            folder = self.out / name
            results = run(
                suite,
                folder,
                workers=self.workers,
                device=self.device,
                micro_batch=self.micro_batch,
                keep_maps=False,
            )
            self._read[name] = Reading(results)
        return self._read[name]


def _chosen(how: Options) -> dict[str, Any]:
    return {name: value for name, value in how.items() if value is not None}


def _require_files(*paths: Path) -> None:
    for path in paths:
        if not path.is_file():
            raise PrerequisiteError(
                f"Expected a file `{path}`, but there is none. Pass the folder that holds "
                f"`{path.parent.name}/{path.name}` with `--data`."
            )


def usual_n(paper: str) -> int:
    """The default number of images for a paper's claims."""
    n: int = module_of(paper).USUAL_N
    return n


def run_study(name: str, study: Study) -> tuple[list[ClaimRow], Path]:
    """Run `soco` or `soco.12`, write the results, and return the rows of these claims.

    The results are written after every claim, so a stopped run loses nothing.
    """
    paper, claims = _runnable(name)
    tests = module_of(paper).TESTS
    about = {"assay": __version__, "python": platform.python_version(), "seed": study.seed}
    path = study.out / f"{paper}.json"
    for claim in claims:
        rows = [reproducible(row, study) for row in tests[claim.id](claim, study)]
        path = write(paper, rows, study.out, about)
    ids = {claim.id for claim in claims}
    written = parse(path.read_text(encoding="utf-8"), str(path))
    return [row for row in written if row.claim in ids], path


def reproducible(row: ClaimRow, study: Study) -> ClaimRow:
    """The row with the size of its images and the command that gives it again."""
    if row.n is None:
        return row
    size = module_of(row.paper).image_size(row.claim, study)
    return replace(row, size=size, stated_size=size, command=command_of(row, study))


def command_of(row: ClaimRow, study: Study) -> str:
    """The command that gives a row again, with every option that its numbers depend on."""
    if row.source:
        return f"assay claims --run {row.claim} --out {_quoted(PurePath(row.source).parent)}"
    size = module_of(row.paper).image_size(row.claim, study)
    given = {name: getattr(study, name) for name in (*DEFAULTS, *OF_THE_MODULE)}
    more = {name: value for name, value in given.items() if value != _usual(name)}
    imagenet = IMAGENET in study.models
    by_module = imagenet or bool(set(more) & set(OF_THE_MODULE))
    words = [
        f"python -m assay.studies.{row.paper}.study {row.claim}"
        if by_module
        else f"assay claims --run {row.claim}",
        "--imagenet" if imagenet else "",
        "--data DATA" if study.dataset is not None else "",
        f"--n {study.n}",
        f"--size {size}" if row.claim in module_of(row.paper).DESIGNED else "",
        *(f"--{name} {value}" for name, value in more.items()),
        f"--out {_quoted(study.out)}",
    ]
    return " ".join(word for word in words if word)


def _usual(name: str) -> int:
    return {**DEFAULTS, **OF_THE_MODULE}[name]


def _quoted(path: PurePath) -> str:
    return shlex.quote(path.as_posix())


def _runnable(name: str) -> tuple[str, list[Claim]]:
    """The paper, and the named claims that can be run."""
    paper, claims = chosen(name)
    runnable = [claim for claim in claims if claim.id in module_of(paper).TESTS]
    if not runnable:
        raise PrerequisiteError(f"The claim `{name}` cannot be run yet. {claims[0].reason}")
    return paper, runnable


def forecasts(name: str, study: Study) -> dict[str, Forecast]:
    """The cost of the runs of `soco` or `soco.12`, by folder.

    Raises:
        InputError: The cost cannot be counted in advance.
    """
    paper, claims = _runnable(name)
    suites = module_of(paper).suites_of([claim.id for claim in claims], study)
    if not suites:
        raise InputError(
            f"The passes of `{name}` cannot be counted in advance, because it trains networks or "
            f"draws data first. Try it on a small scale with `--n 20 --trials 4`."
        )
    return {
        folder: dry_run(
            suite,
            study.out / folder,
            workers=study.workers,
            device=study.device,
            micro_batch=study.micro_batch,
            time_it=False,
        )
        for folder, suite in suites.items()
    }


def main(paper: str) -> None:
    """The command `python -m assay.studies.PAPER.study`: run all claims or the named ones."""
    parser = argparse.ArgumentParser(description=f"Run the claims of {paper}.")
    parser.add_argument("claims", nargs="*", default=[paper], help=f"e.g. {paper}.12; else all")
    parser.add_argument("--data", type=Path, help="holds cifar10/, weights/, imagenet-sample/")
    parser.add_argument("--out", type=Path, required=True, help="runs and results; continued")
    for name in ("n", "trials", "seed", "size", "steps", "resamples", "workers", "micro-batch"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--device", help="e.g. cuda")
    parser.add_argument("--imagenet", action="store_true", help="EfficientNet-Lite0 on ImageNet")
    parser.add_argument("--dry-run", action="store_true", help="only count forward passes")
    options = vars(parser.parse_args())
    names, dry = options.pop("claims"), options.pop("dry_run")
    try:
        kind = Study.imagenet if options.pop("imagenet") else Study.cifar
        options["n"] = options["n"] or usual_n(paper)
        study = kind(options.pop("data"), options.pop("out"), **options)
        for name in names:
            lines = _forecast_lines(name, study) if dry else _result_lines(name, study)
            print("\n".join(lines))
    except (InputError, PrerequisiteError) as error:
        parser.exit(2, f"assay: {error}\n")


def _forecast_lines(name: str, study: Study) -> list[str]:
    return [f"{run}: {forecast}" for run, forecast in forecasts(name, study).items()]


def _result_lines(name: str, study: Study) -> list[str]:
    rows, path = run_study(name, study)
    return [*map(_result_line, rows), f"Results: {path}"]


def _result_line(row: ClaimRow) -> str:
    if row.value is None:
        return f"{row.id}: {row.verdict}. {row.note}"
    interval = f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]"
    return f"{row.id}: {row.verdict} ({row.setting}, n {row.n}): {interval}\n  {row.command}"
