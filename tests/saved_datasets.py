"""Datasets on disk as Hugging Face's `save_to_disk` writes them."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((6, 6, 3), value, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


CLASS = {"names": ["dog", "cat"], "_type": "ClassLabel"}
IMAGES = {"image": [{"bytes": png(v), "path": None} for v in (0, 80, 160, 240)],
          "label": [0, 1, 1, 0]}  # fmt: skip


def save_to_disk(folder: Path, columns: dict[str, list], features: dict, files: int = 1) -> Path:
    """The layout of `datasets.Dataset.save_to_disk`."""
    folder.mkdir(parents=True)
    table = pa.table(columns)
    named = [f"data-{i:05d}-of-{files:05d}.arrow" for i in range(files)]
    cuts = [round(i * len(table) / files) for i in range(files + 1)]
    for i, file in enumerate(named):
        with pa.OSFile(str(folder / file), "wb") as sink:
            part = table.slice(cuts[i], cuts[i + 1] - cuts[i])
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(part)
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    state = {"_data_files": [{"filename": file} for file in named], "_fingerprint": "x"}
    (folder / "state.json").write_text(json.dumps(state))
    return folder
