"""Training of small networks, where a study or an environment needs one."""
