"""The claims of AttributionLab."""

from assay.plugins.moved import names_now_in

__getattr__ = names_now_in("assay.studies.attributionlab", "assay.studies.attributionlab.study")
