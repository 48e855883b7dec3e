"""The claims of SoCo (soundness and completeness)."""

from assay.plugins.moved import names_now_in

__getattr__ = names_now_in("assay.studies.soco", "assay.studies.soco.study")
