"""Networks and images in miniature, with known or knowable answers: those of the package."""

from assay.conformance.worlds import LinearImages, SmallNet, make_images, make_net

__all__ = ["LinearImages", "SmallNet", "make_images", "make_net"]
