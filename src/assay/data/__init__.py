"""Samples: tensors in memory, folders and tables of images or texts, packaged photographs."""
