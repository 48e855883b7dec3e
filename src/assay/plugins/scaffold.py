"""The file of a new plug-in and its test; both run as they are."""

import datetime
import keyword
from importlib import resources
from pathlib import Path
from string import Template

from assay.errors import InputError, PrerequisiteError, unknown

NEXT = {
    "method": "assay run --methods {file}:{name},random --model MODEL --data DATA",
    "protocol": "assay run --protocols {file}:{name} --model MODEL --data DATA",
    "model": "assay run --model {file}:{name} --data DATA --size 32 --mean .5 --std .5",
    "environment": "python -c \"import assay; env = assay.environment('{file}:{name}'); "
    "print(assay.benchmark(env.model, env.dataset, ['saliency', 'input_x_gradient', 'random'], "
    "['truth_f1']).leaderboard())\"",
}


def write_plugin(kind: str, name: str, folder: Path) -> tuple[Path, Path]:
    """Write `NAME.py` and `test_NAME.py`; the test passes as it is.

    Args:
        kind: `method`, `protocol`, `model` or `environment`.
        name: A Python identifier: the name of the file, the function and the plug-in.
        folder: The folder to write to; made where it does not exist.

    Raises:
        InputError: The name is not a Python identifier, or a file already exists.
        PrerequisiteError: The folder cannot be written to.
    """
    if kind not in NEXT:
        raise unknown("kind of plug-in", kind, NEXT)
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise InputError(
            f"Expected the name of a Python function, such as `my_{kind}`, got `{name}`."
        )
    files = folder / f"{name}.py", folder / f"test_{name}.py"
    for file in files:
        if file.exists():
            raise InputError(f"`{file}` already exists. Choose another name, or `--out`.")
    values = {
        "name": name,
        "title": name.replace("_", " ").strip().capitalize() or name,
        "year": str(datetime.datetime.now(datetime.UTC).year),
    }
    templates = resources.files("assay") / "plugins" / "templates"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, template in zip(files, (f"{kind}.py.txt", f"test_{kind}.py.txt"), strict=True):
            file.write_text(Template((templates / template).read_text()).substitute(values))
    except OSError as error:
        raise PrerequisiteError(f"Cannot write `{error.filename}`: {error.strerror}.") from error
    return files


def next_steps(kind: str, file: Path, test: Path) -> list[str]:
    """The commands that test the plug-in and run it."""
    address = str(file) if file.is_absolute() or "/" in str(file) else f"./{file}"
    conformance = [] if kind == "model" else [f'assay doctor "{address}:{file.stem}"']
    run = NEXT[kind].format(file=address, name=file.stem)
    return [f'pytest "{test}"', *conformance, run]
