"""Samples: tensors in memory, parquet files, packaged photographs."""
