"""The claims of M4."""

from assay.plugins.moved import names_now_in

__getattr__ = names_now_in("assay.studies.m4", "assay.studies.m4.study")
