"""The execution of a run: shards, executors, manifest, previews, budget."""

from assay.plugins.moved import names_now_in
from assay.run.suite_run import dry_run, run_suite

run = run_suite  # `assay.run.run`, as users know it

__all__ = ["dry_run", "run"]
__getattr__ = names_now_in("assay.run", "assay.run.suite_run")
