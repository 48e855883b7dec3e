"""The plan of a run: shards, cells, the scoring of one case, and the forecast of its cost."""

from assay.plugins.moved import names_now_in

__getattr__ = names_now_in("assay.plan", "assay.plan.plan")
