"""The claims of Meta-Rank (Duan et al. 2024) about the agreement of rankings."""
