"""Networks that a study trains on a planted feature; their weights are stored in its folder."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from PIL import Image

from assay.environments.bases import AS_THEY_ARE
from assay.environments.environment import Environment, environment
from assay.errors import PrerequisiteError
from assay.plan.resolving import build_one
from assay.types import Dataset, Preprocess, Sample

if TYPE_CHECKING:
    from assay.studies.setting import Study


def planted(plant: str, study: Study, label: str | None = None, **options: object) -> Environment:
    """A planted feature on the study's images, with a network trained on it.

    Args:
        plant: The environment's name.
        study: Its images, seed, device, trained weights and folder are used.
        label: The environment's name in tables.
        **options: Options of the environment; they override those of the study.

    Raises:
        PrerequisiteError: There are no images, or no proof that the network uses the plant.
    """
    _require_images(study)
    cache = study.out / "planted"
    cache.mkdir(parents=True, exist_ok=True)
    usual = {"base": study.dataset, "seed": study.seed, "device": study.device}
    options = {**usual, "cache": str(cache), **options}
    return environment(plant, label=label, trained=study.trained, **options)


def read_once(study: Study, size: int) -> Dataset:
    """The study's images as pixels, each decoded only once for many networks."""
    _require_images(study)
    dataset: Dataset = build_one("dataset", study.dataset)
    prepare = Preprocess(size, AS_THEY_ARE)

    @functools.cache
    def fetch(name: str) -> Sample:
        sample = dataset.fetch(name)
        if not isinstance(sample.input, Image.Image):
            return sample
        return replace(sample, input=prepare(sample.input))

    return replace(dataset, fetch=fetch)


def _require_images(study: Study) -> None:
    if study.dataset is None:
        raise PrerequisiteError(
            "This claim plants a feature on images. Pass the folder that holds `cifar10/` and "
            "`weights/` with `--data`."
        )
