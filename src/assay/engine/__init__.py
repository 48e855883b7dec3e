"""The only place where a protocol makes the model run."""
