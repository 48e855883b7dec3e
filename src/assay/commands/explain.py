"""`assay explain`: one method's map over one image or text, written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands.arguments import (
    MODEL_HELP,
    CardOption,
    MeanOption,
    ResizeOption,
    SizeOption,
    StdOption,
    TrustOption,
    WeightsOption,
)
from assay.commands.terminal import say
from assay.errors import InputError, PrerequisiteError
from assay.suite.defaults import IMAGE_METHOD, TEXT_METHOD

if TYPE_CHECKING:
    from PIL import Image

    from assay.plugins.option_types import Item
    from assay.report.words import Words


def explain(
    image: Annotated[
        str, typer.Argument(help="An image file. For a model of texts, the text itself.")
    ],
    model: Annotated[str, typer.Option(help=MODEL_HELP)],
    method: Annotated[
        str | None,
        typer.Option(
            help="A name or ./file.py:function. "
            f"By default {IMAGE_METHOD}, or {TEXT_METHOD} for texts."
        ),
    ] = None,
    best: Annotated[
        Path | None, typer.Option(help="A run's folder. Use its first unbeaten method.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The file to write. By default explanation.png or .html."
        ),
    ] = None,
    target: Annotated[
        int | None,
        typer.Option(
            min=0, help="The number of the class to explain. By default the predicted class."
        ),
    ] = None,
    weights: WeightsOption = None,
    size: SizeOption = None,
    resize: ResizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    card: CardOption = None,
    trust_code: TrustOption = False,
) -> None:
    """Draw one method's map over an image or text. Red supports the class, blue opposes it."""
    from assay.suite.from_options import ModelOptions, model_item

    if best is not None and method is not None:
        raise InputError("Expected `--method` or `--best`, not both: the run names the method.")
    item = model_item(model, ModelOptions(weights, size, resize, mean, std, card=card))
    sentences, picture = _explained(image, item, method, best, target, trust_code)
    output = output or Path("explanation.html" if hasattr(picture, "words") else "explanation.png")
    _save(picture, output)
    for line in (*sentences, f"The map: {output}"):
        say(line)


def _explained(
    image: str,
    item: Item,
    method: str | None,
    best: Path | None,
    target: int | None,
    trust_code: bool,
) -> tuple[list[str], Image.Image | Words]:
    """The sentences to print and the picture to write."""
    from assay.answers.best import explain_best, run_description
    from assay.answers.picture import explain_picture
    from assay.plugins.registry import pick

    if best is None:
        sentence, picture = explain_picture(image, item, method, target)
        return [sentence], picture
    name, options = pick(item)
    described = {name: {**run_description(best), **options}}
    return explain_best(image, described, best, target, trust_code)


def _save(picture: Image.Image | Words, output: Path) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        picture.save(output)
    except InputError:
        raise
    except ValueError:
        raise InputError(f"Expected `-o` to end in .png or .jpg, got `{output}`.") from None
    except OSError as error:
        raise PrerequisiteError(f"Cannot write `{output}`: {error.strerror or error}.") from None
