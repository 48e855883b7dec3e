"""Networks trained here, because what they use must be known."""
