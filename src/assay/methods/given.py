"""Maps computed elsewhere, as a method."""
