"""Claims of the literature as small experiments, and what came out of them."""
