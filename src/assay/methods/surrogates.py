"""A simple model fitted to the network's answers around one input: LIME and KernelSHAP."""
