"""Methods that go back through a network by other rules than the gradient's."""
