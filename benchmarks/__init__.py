"""How near each protocol and method is to the network passes it cannot do without."""
