"""How a row of a claim is made again: image size, source and the command. Imports no torch."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from assay.studies.claim import ClaimRow
from assay.studies.published_claims import module_of

if TYPE_CHECKING:
    from assay.studies.setting import Study

DEFAULTS = {"trials": 20, "seed": 0}  # options that a command need not give
OF_THE_MODULE = {"steps": 50, "resamples": 2000}  # only `python -m` has these options
IMAGENET = "efficientnet_lite0"


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
