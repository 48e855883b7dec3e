"""Maps made without a network, as rivals: a rectangle and a pooled image."""
