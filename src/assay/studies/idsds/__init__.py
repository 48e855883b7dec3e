"""The claims of IDSDS."""
