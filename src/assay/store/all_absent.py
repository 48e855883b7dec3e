"""The model's answers to whole samples, and to the same samples without any of their units."""

import json
from dataclasses import dataclass

import numpy as np

from assay.store.json_records import Json
from assay.store.shard_log import LogRecord
from assay.store.tables import Array

ALL_ABSENT = "all_absent"  # kind of record


@dataclass(frozen=True, eq=False)
class AllAbsent:
    """The answers of a shard's samples when nothing and when everything is absent.

    Attributes:
        fill: What stands in place of the units, see `fill_text`.
        clean_logit: The logit of the explained class, one number per sample.
        clean_log_prob: Its log-probability.
        logit: The logit when everything is absent.
        log_prob: Its log-probability then.
    """

    fill: str
    clean_logit: Array
    clean_log_prob: Array
    logit: Array
    log_prob: Array

    def output(self, name: str) -> tuple[Array, Array]:
        """The answers with nothing and with everything absent, as `logit`, `probability`, ..."""
        return (
            _output(name, self.clean_logit, self.clean_log_prob),
            _output(name, self.logit, self.log_prob),
        )


def _output(name: str, logit: Array, log_prob: Array) -> Array:
    if name == "logit":
        return logit.astype(np.float64)
    known = log_prob.astype(np.float64)
    if name == "log_odds":
        return known - np.log(-np.expm1(np.minimum(known, -1e-16)))
    return np.exp(known)


def fill_text(fill: Json) -> str:
    """A fill as options of protocols hold it, as a text that identifies it within a run."""
    return json.dumps(fill, sort_keys=True)


def all_absent_record(key: str, answers: AllAbsent) -> LogRecord:
    """The record of these answers."""
    arrays = {name: value for name, value in vars(answers).items() if name != "fill"}
    return LogRecord.make(ALL_ABSENT, key, {"fill": answers.fill}, arrays)


def read_all_absent(record: LogRecord) -> AllAbsent:
    """The answers in a record."""
    return AllAbsent(str(record.facts["fill"]), **record.arrays())
