"""Data, network and ground truth made together, so that the true map is known."""
