"""Attribution methods, by family."""

from assay.plugins.moved import names_now_in

__getattr__ = names_now_in("assay.methods", "assay.methods.attribution")
