"""The claims of five papers as small experiments, and our verdicts."""
