"""The command line: assembles the commands of `assay.commands`."""

import sys
import warnings
from typing import Annotated, TextIO

import typer
from rich.console import Console
from rich.markup import escape

from assay.commands.check import check
from assay.commands.claims import claims
from assay.commands.compare import compare
from assay.commands.consistency import consistency
from assay.commands.demo import demo
from assay.commands.doctor import doctor
from assay.commands.explain import explain
from assay.commands.finetune import finetune
from assay.commands.list import list_plugins
from assay.commands.new import new
from assay.commands.rank import rank
from assay.commands.report import report
from assay.commands.run import run
from assay.commands.terminal import FAILED, MISTAKE, console, ending_itself
from assay.commands.trust import trust
from assay.commands.verify import verify
from assay.commands.zoo import zoo_app
from assay.errors import AssayWarning, IncompleteRun, InputError, NotApplicable, PrerequisiteError

app = typer.Typer(
    help="Which feature-attribution method can you trust, for this model and this data?",
    epilog="Start with `assay demo`. Then try `assay run --model ... --data ...` on your network.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Which feature-attribution method can you trust, for this model and this data?"""
    if show:
        from assay import __version__

        console.print(__version__)
        raise typer.Exit


# In the order of the help.
app.command()(ending_itself(run))
app.command()(ending_itself(demo))
app.command()(ending_itself(explain))
app.command()(ending_itself(finetune))
app.command("list")(ending_itself(list_plugins))
app.command()(ending_itself(report))
app.command()(ending_itself(verify))
app.command()(ending_itself(claims))
app.command()(ending_itself(check))
app.command()(ending_itself(trust))
app.command()(ending_itself(rank))
app.command()(ending_itself(consistency))
app.add_typer(zoo_app, name="zoo")
app.command()(ending_itself(compare))
app.command()(ending_itself(doctor))
app.command()(ending_itself(new))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning: those of assay in one line, others as Python does."""
    if issubclass(category, AssayWarning):
        text = f"[yellow]Warning:[/yellow] {escape(str(message))}"
        Console(stderr=True).print(text, highlight=False, soft_wrap=True)
    else:
        text = warnings.formatwarning(str(message), category, filename, lineno, line)
        (file or sys.stderr).write(text)


def main() -> None:
    """Run the command line; print mistakes and warnings in one line, without a traceback."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app()
    except (InputError, PrerequisiteError, NotApplicable) as error:
        text = f"[red]assay:[/red] {escape(str(error))}"
        Console(stderr=True).print(text, highlight=False, soft_wrap=True)
        raise SystemExit(FAILED if isinstance(error, IncompleteRun) else MISTAKE) from None


if __name__ == "__main__":
    main()
