"""Extremal perturbation: the smooth mask of a given area that keeps the answer highest."""
