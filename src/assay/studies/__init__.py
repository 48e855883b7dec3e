"""Claims of the literature as small experiments, with their published results."""
