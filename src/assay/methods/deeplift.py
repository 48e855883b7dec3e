"""Differences from a baseline, carried back through the network: DeepLIFT and DeepSHAP."""
