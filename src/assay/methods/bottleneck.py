"""Information bottlenecks: how much of a layer, or of the input, the answer needs."""
