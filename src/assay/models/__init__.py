"""Networks with their weights, and the wrapper that makes any network a model."""
