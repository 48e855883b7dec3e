"""The page's part on signal: is there anything to rank, and do scores respond to worse maps?"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.ranking.dose_response import DoseResponse
from assay.ranking.signal import Signal, SignalKey, signal_lines
from assay.report.charts import NOTHING
from assay.store import SettingKey


@dataclass(frozen=True)
class DoseLine:
    """The dose-response of one protocol, as the page shows it."""

    protocol: str
    methods: int
    slope: str
    monotone: str
    smallest: str
    falls: bool


@dataclass(frozen=True)
class SignalSection:
    """What a setting's signal says in words, and the dose-response of its protocols."""

    lines: Sequence[str]
    doses: Sequence[DoseLine]


def signal_section(
    setting: SettingKey,
    signals: dict[SignalKey, Signal],
    responses: Sequence[DoseResponse],
) -> SignalSection:
    """The part of one setting."""
    here = {key: row for key, row in signals.items() if row.setting == setting}
    doses = [_line(row) for row in responses if row.setting == setting]
    return SignalSection(signal_lines(here).get(setting, []), doses)


def _line(row: DoseResponse) -> DoseLine:
    ends = ""
    if row.slope_low is not None and row.slope_high is not None:
        ends = f" ({row.slope_low:.2f} to {row.slope_high:.2f})"
    return DoseLine(
        row.protocol,
        row.methods,
        NOTHING if row.slope is None else f"{row.slope:.2f}{ends}",
        f"{row.monotone:.0%}",
        NOTHING if row.smallest_dose is None else f"{row.smallest_dose:g}",
        row.falls,
    )
