"""Doing a run: shards, executors, manifest, previews, budget."""

from assay.plugins.moved import names_now_in
from assay.run.suite_run import dry_run as dry_run
from assay.run.suite_run import run as run

__getattr__ = names_now_in("assay.run", "assay.run.suite_run")
