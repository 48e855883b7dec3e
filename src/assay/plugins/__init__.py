"""Plug-ins: how they are registered, named, configured and identified."""
