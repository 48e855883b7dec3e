"""Class activation maps without gradients: how the answer changes under each channel."""
