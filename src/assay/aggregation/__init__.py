"""One order from many settings, and how far settings agree."""
