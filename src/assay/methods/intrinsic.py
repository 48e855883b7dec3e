"""Networks that explain themselves: B-cos and BagNet."""
