"""A model with several checkpoints of one training run, written as one item of a suite."""

from collections.abc import Collection, Iterator, Mapping

from assay.errors import InputError
from assay.plugins.display_names import display_name

CHECKPOINTS = "checkpoints"
PLACE = "{}"  # in `weights`: where the name of the checkpoint stands


def has_checkpoints(written: Mapping[str, object], options: Collection[str]) -> bool:
    """Whether an item names checkpoints; `options` are those of the model's own factory."""
    return CHECKPOINTS in written and CHECKPOINTS not in options


def each_checkpoint(
    model: str, written: Mapping[str, object]
) -> Iterator[tuple[str, dict[str, object]]]:
    """The name of each checkpoint, and the model's options with its weights.

    Args:
        model: The name of the model, for errors.
        written: What the suite sets: `checkpoints`, a list of names, and `weights`, a path with
            `{}` for the name or one file for each.

    Raises:
        InputError: A list is empty or names something twice, or the weights do not fit it.
    """
    names = _names(model, written[CHECKPOINTS])
    if "checkpoint" in written:
        raise InputError(f"Expected `checkpoint` or `checkpoints` for model `{model}`, got both.")
    files = _files(model, names, written.get("weights"))
    rest = {name: value for name, value in written.items() if name != CHECKPOINTS}
    for name, file in zip(names, files, strict=True):
        yield name, {**rest, "weights": file}


def checkpoint_name(label: str, checkpoint: str) -> str:
    """What tells one checkpoint of a model apart from the others: `resnet20-s0@3`."""
    return f"{label}@{checkpoint}"


def _names(model: str, written: object) -> list[str]:
    what = f"`{CHECKPOINTS}` of model `{model}`"
    if not isinstance(written, list | tuple) or not written:
        raise InputError(
            f"Expected {what} to be a list of names or numbers, `[1, 2, 5]`, got {written!r}."
        )
    names = [display_name(name, f"each of {what}") for name in written]
    if not all(name.strip() for name in names):
        raise InputError(f"Expected {what} to be names or numbers, got an empty one.")
    _once(names, what)
    return names


def _files(model: str, names: list[str], written: object) -> list[str]:
    """The file of each checkpoint."""
    how = f"a path with `{PLACE}` for the checkpoint, or a list with one file for each"
    if written is None:
        raise InputError(f"Expected `weights` of model `{model}`: {how}. It has `{CHECKPOINTS}`.")
    if isinstance(written, list | tuple):
        if len(written) != len(names):
            raise InputError(
                f"Expected `weights` of model `{model}` to hold one file for each of {len(names)} "
                f"checkpoints, got {len(written)}."
            )
        files = [str(file) for file in written]
        _once(files, f"`weights` of model `{model}`")
        return files
    if PLACE not in str(written):
        raise InputError(f"Expected `weights` of model `{model}` to be {how}, got `{written}`.")
    return [str(written).replace(PLACE, name) for name in names]


def _once(names: list[str], what: str) -> None:
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise InputError(f"Expected {what} to name each once, got `{twice[0]}` twice.")
