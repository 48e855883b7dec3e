"""Layer-wise relevance propagation: the answer is dealt out, layer by layer, down to the input."""
