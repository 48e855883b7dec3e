"""The page: a run as one self-contained HTML file."""
