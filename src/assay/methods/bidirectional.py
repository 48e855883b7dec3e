"""Bidirectional transformer attribution: attention from the class, gradients from the answer."""
