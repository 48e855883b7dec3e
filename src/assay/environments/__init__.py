"""Data, network and ground truth made together, so that the true attribution is known."""
