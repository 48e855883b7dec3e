"""The plan of a run: shards, cells, scoring of one case, forecast."""

from assay.plugins.moved import names_now_in

__getattr__ = names_now_in("assay.plan", "assay.plan.plan", "assay.plan.resolving")
