"""Questions beyond a run: refute a method, explain one input with the best method."""
