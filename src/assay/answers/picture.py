"""One picture or text, one model, one method: the map over it, and the model's prediction."""

from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from assay.api import explain
from assay.data.pictures import open_picture
from assay.errors import InputError, PrerequisiteError
from assay.plan.resolving import build_one
from assay.plugins import registry
from assay.plugins.registry import Method
from assay.report.overlay import overlay
from assay.report.words import Words
from assay.suite.defaults import IMAGE_METHOD, TEXT_METHOD
from assay.types import Dataset, Model, Prepare, Sample, Tokenize
from assay.types.model import log_probabilities
from assay.types.sample_content import content_of

VISIBLE = 256  # pixels of the longer side, at least, as far as whole multiples go


@dataclass(frozen=True)
class Picture:
    """An image file or a text as the input of a model, and the model's probabilities."""

    model: Model
    raw: Image.Image | str  # as a data set of files holds it
    inputs: Tensor  # [1, C, H, W], or [1, T] of a text
    shares: Tensor  # [classes]: the probability of each
    target: int  # the explained class

    @property
    def sample(self) -> Dataset:
        """The image or text as a data set of one sample, labelled with the explained class.

        Its random numbers are those of the same image or text in a run, which belong to `raw`.
        """
        known = Sample(self.raw, self.target)
        return Dataset(
            name="data",
            modality="text" if isinstance(self.raw, str) else "image",
            ids=("0",),
            fetch=lambda _: known,
            fingerprint=content_of(self.raw),
            labels={"0": self.target},
        )

    @property
    def probability(self) -> float:
        """The probability of the explained class."""
        return float(self.shares[self.target])

    @property
    def sentence(self) -> str:
        """The probability of the explained class, in words."""
        return f"{self.model.name} gives {self.name} a probability of {self.probability:.3f}."

    @property
    def name(self) -> str:
        """The name of the explained class."""
        return self.class_name(self.target)

    def class_name(self, number: int) -> str:
        """The name of a class, or its number."""
        return self.model.classes[number] if self.model.classes else f"class {number}"

    @property
    def usual_method(self) -> str:
        """The method where none is named."""
        return IMAGE_METHOD if self.model.tokens is None else TEXT_METHOD

    def over(self, values: Tensor) -> Image.Image | Words:
        """A map over the picture, or over the words."""
        prepare = self.model.prepare
        if isinstance(prepare, Tokenize):
            special = prepare.tokens.special_at(self.inputs[0]).tolist()
            return Words(self.sentence, prepare.words(self.inputs[0]), values, special)
        if prepare is None:
            raise PrerequisiteError(
                f"Expected model `{self.model.name}` to say how it prepares images; it does not."
            )
        shown = overlay(prepare.pixels.to_pixels(self.inputs[0]), values)
        times = max(1, VISIBLE // max(shown.size))  # small pictures are enlarged to be seen
        return shown.resize((shown.width * times, shown.height * times), Image.Resampling.NEAREST)


def read_picture(path: str | Path, model_item: object, target: int | None) -> Picture:
    """Read an image file, or a text, for a model; `target` is the predicted class by default.

    Raises:
        InputError: The file holds no image, or there is no such class.
        PrerequisiteError: There is no such file, or the model does not say how it prepares images.
    """
    model = build_one("model", model_item)
    if model.prepare is None:
        raise PrerequisiteError(
            f"Expected model `{model.name}` to say how it prepares images; it does not. "
            f"Give --size, --mean and --std."
        )
    raw, inputs = _read(path, model.prepare)
    with model.evaluating(), torch.no_grad():
        logits, binary = model.read(inputs.to(model.device))
        shares = log_probabilities(logits, binary)[0].exp()
    if target is not None and target >= len(shares):
        raise InputError(f"Expected a class below {len(shares)}, got {target}.")
    return Picture(model, raw, inputs, shares, int(shares.argmax()) if target is None else target)


def _read(path: str | Path, prepare: Prepare) -> tuple[Image.Image | str, Tensor]:
    """The image in a file as data sets of files read it, or the text, and the model's input."""
    if isinstance(prepare, Tokenize):
        return str(path), prepare(str(path))[None]
    try:
        with open_picture(Path(path), f"`{path}`") as file:
            image = file.convert("RGB")
    except FileNotFoundError:
        raise PrerequisiteError(f"There is no file `{path}`.") from None
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"Expected an image in `{path}`: {error}.") from error
    return image, prepare(image)[None]


def refuse_maps(method: Method) -> None:
    """Refuse stored maps: they hold nothing about an input outside their dataset.

    Raises:
        InputError: The method only looks up maps.
    """
    if method.only_looks_up:
        raise InputError(
            f"Expected a method that can explain a new picture or text; `{method.name}` only looks "
            f"up what was computed for the samples of a dataset. Name another with `--method`."
        )


def explain_picture(
    path: str | Path, model_item: object, method: str | None, target: int | None
) -> tuple[str, Image.Image | Words]:
    """Explain an image file or a text: the prediction in words, and the method's map over it.

    Raises:
        InputError: The file holds no image, or the model does not say how it prepares one.
    """
    picture = read_picture(path, model_item, target)
    chosen = method or picture.usual_method
    refuse_maps(registry.get("method", registry.pick(chosen)[0]))
    values = explain(picture.model, picture.sample, None, chosen)[0]
    return f"{picture.sentence} Explained with {chosen}.", picture.over(values)
