"""What the command line does, one file per matter; `cli.py` holds only the commands."""
