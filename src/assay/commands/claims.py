"""`assay claims`: one verdict a claim with its rows, and claims run again."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands.arguments import (
    BatchOption,
    DeviceOption,
    DryOption,
    JsonOption,
    OutOption,
    WorkersOption,
)
from assay.commands.terminal import console, say
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.studies.claim import ClaimRow
    from assay.studies.claim_verdict import ClaimVerdict
    from assay.studies.setting import Study

WIDEST = 100  # columns of running text


def claims(
    name: Annotated[
        str | None,
        typer.Argument(help="A paper (soco), or one claim with its rows (soco.12)."),
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(help="Only this paper's claims: m4, idsds, soco, attributionlab or metarank."),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run", help="Run one claim (soco.12) or all claims of a paper (soco)."),
    ] = None,
    rows: Annotated[
        bool,
        typer.Option("--rows", help="Print the rows behind each verdict: numbers, units, command."),
    ] = False,
    as_json: JsonOption = False,
    data: Annotated[
        Path | None, typer.Option(help="For --run: the folder that holds cifar10/ and weights/.")
    ] = None,
    out: OutOption = Path("assay-claims"),
    n: Annotated[
        int | None,
        typer.Option(min=2, help="The number of images. The default depends on the paper."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=2, help="How many synthetic datasets (default 20); half as many networks."
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=8, help="Pixels per side of attributionlab's designed images (default 224)."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The random seed, 0 by default.")] = None,
    device: DeviceOption = None,
    workers: WorkersOption = 1,
    micro_batch: BatchOption = None,
    dry_run: DryOption = False,
) -> None:
    """List claims from papers and our verdicts. With --run, repeat the experiments.

    A row is the result in one setting; the rows of a claim make one verdict.
    Rows that are decided differently make the claim mixed. Otherwise, a row that
    is to be run again makes it to be run again, and an open row makes it
    undecided. If all rows agree, theirs is the verdict.

    A row is to be run again if its command would not give it (other image size,
    definition or parts), or if it has fewer or smaller units than the claim states.
    """
    if sum(given is not None for given in (name, paper, run_id)) > 1:
        raise InputError("Expected one of a name, `--paper` and `--run`: each names the paper.")
    if run_id is None:
        chosen = published_rows(name or paper)
        return print_claims(chosen, as_json, with_rows=rows or "." in (name or ""))
    from assay.studies.setting import Study, usual_n

    study = Study.cifar(
        data, out, n=n or usual_n(run_id.partition(".")[0]), trials=trials, size=size, seed=seed,
        device=device, workers=workers, micro_batch=micro_batch,
    )  # fmt: skip
    if dry_run:
        print_forecasts(run_id, study)
    else:
        run_claims(run_id, study, as_json)


def published_rows(name: str | None) -> list[ClaimRow]:
    """The published rows of one claim, of one paper, or of all."""
    from assay.studies.published_claims import PAPERS, chosen, published

    if name is None:
        return [row for paper in PAPERS for row in published(paper)]
    paper, claims = chosen(name)
    ids = {claim.id for claim in claims}
    return [row for row in published(paper) if row.claim in ids]


def print_claims(rows: Sequence[ClaimRow], as_json: bool, with_rows: bool = False) -> None:
    """Print one verdict a claim, if asked with its rows, or the rows as JSON."""
    from assay.studies.claim_verdict import verdicts_of

    verdicts = verdicts_of(rows)
    if as_json:
        shown = [row_with_verdict(row, verdict) for verdict in verdicts for row in verdict.rows]
        print(json.dumps(shown, indent=1, ensure_ascii=False))
        return
    for verdict in verdicts:
        for line in claim_lines(verdict, with_rows, min(console.width, WIDEST)):
            say(line)


def row_with_verdict(row: ClaimRow, verdict: ClaimVerdict) -> dict[str, object]:
    """A row for programs, with the verdict of its claim."""
    return {
        **row.shown(),
        "claim_verdict": verdict.verdict,
        "claim_setting": verdict.setting,
        "claim_text": verdict.text,
        "claim_why": verdict.why,
    }


def claim_lines(verdict: ClaimVerdict, with_rows: bool, width: int) -> Iterator[str]:
    """The verdict of a claim, its statement and, if asked, its rows, within a width."""
    from assay.studies.claim import NOT_RUN, NOT_TESTABLE

    short = verdict.why and not with_rows and verdict.verdict not in (NOT_RUN, NOT_TESTABLE)
    head = f"{verdict.claim}: {verdict.text}" + (f" ({verdict.why})" if short else "")
    yield from _wrapped(head, "", width)
    yield from _wrapped(f"{verdict.statement}.", "  ", width)
    if with_rows:
        for row in verdict.rows:
            yield from row_lines(row, width)


def row_lines(row: ClaimRow, width: int) -> Iterator[str]:
    """The details of one row: number, units, note and command."""
    if row.value is None:
        yield from _wrapped(f"{row.id}: {row.note}", "    ", width)
        return
    number = f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]"
    setting = f" ({row.setting})" if row.setting else ""
    size = f", {row.size} x {row.size} pixels" if row.size else ""
    yield from _wrapped(f"{row.id}: {row.verdict}{setting}, {number}", "    ", width)
    yield from _wrapped(
        f"n = {row.n:,} (stated {row.stated_n:,}), {row.unit}{size}", "      ", width
    )
    yield from _wrapped(str(row.shown()["note"]), "      ", width)
    if row.source:
        yield from _wrapped(f"Measured in {row.source}", "      ", width)
    if row.command:
        yield from _wrapped(row.command, "      $ ", width)


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    more = " " * max(len(indent), 2)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=more, break_on_hyphens=False
    )


def print_forecasts(name: str, study: Study) -> None:
    """Print what a claim, or all claims of a paper, would cost."""
    from assay.commands.printing import forecast_table
    from assay.studies.setting import forecasts

    for title, forecast in forecasts(name, study).items():
        say(title)
        console.print(forecast_table(forecast))


def run_claims(name: str, study: Study, as_json: bool) -> None:
    """Run a claim, or all claims of a paper, and print the verdicts."""
    from assay.studies.setting import run_study

    rows, path = run_study(name, study)
    print_claims(rows, as_json, with_rows=True)
    if not as_json:
        say(f"The results: {path}")
