"""Feature units, what is removed at once, and sets of absent units."""
