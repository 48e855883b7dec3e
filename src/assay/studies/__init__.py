"""The claims of six papers as small experiments, and our verdicts."""
