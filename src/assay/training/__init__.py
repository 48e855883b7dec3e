"""Training of networks, and the store of trained weights."""
