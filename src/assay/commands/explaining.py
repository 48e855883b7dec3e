"""One explanation on the command line, written to a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from assay.answers.best import explain_best, run_description
from assay.answers.picture import explain_picture
from assay.errors import InputError, PrerequisiteError
from assay.plugins.registry import pick
from assay.suite.from_options import model_item


def explain_one(
    console: Console,
    image: str,
    model: str,
    method: str | None,
    best: Path | None,
    output: Path | None,
    target: int | None,
    described: Mapping[str, Any],
) -> None:
    """Explain one picture or text, by a method or by the one a run placed first."""
    if best is not None and method is not None:
        raise InputError("Expected `--method` or `--best`, not both: the run says the method.")
    item = model_item(model, described)
    if best is not None:
        name, said_here = pick(item)
        item = {name: {**run_description(best), **said_here}}
        sentences, picture = explain_best(image, item, best, target)
    else:
        said, picture = explain_picture(image, item, method, target)
        sentences = [said]
    output = output or Path("explanation.html" if hasattr(picture, "words") else "explanation.png")
    _save(picture, output)
    for line in (*sentences, f"The map: {output}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _save(picture: Any, output: Path) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        picture.save(output)
    except InputError:
        raise
    except ValueError:
        raise InputError(f"Expected `-o` to end in .png or .jpg, got `{output}`.") from None
    except OSError as error:
        raise PrerequisiteError(f"Cannot write `{output}`: {error.strerror or error}.") from None
