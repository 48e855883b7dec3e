"""What is measured: a suite, its choices, and the ready-made suites."""
