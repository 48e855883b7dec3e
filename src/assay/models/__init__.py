"""What is explained: networks with their weights, and the wrapper for any other."""
