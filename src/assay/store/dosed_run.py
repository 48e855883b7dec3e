"""A run read as if the mixed maps of `validate` were methods of it."""

from dataclasses import replace

from assay.store.manifest_entries import Manifest, MethodEntry


def with_doses(manifest: Manifest) -> Manifest:
    """The entries of a run in which mixed maps stand after the methods, as if they were some."""
    if not manifest.doses:
        return manifest
    doses = {label: MethodEntry(name=entry.method) for label, entry in manifest.doses.items()}
    own, more = len(manifest.methods), len(doses)
    shards = [
        replace(
            shard,
            cells=[
                key
                for i in range(len(manifest.protocols))
                for key in (
                    *shard.cells[i * own : (i + 1) * own],
                    *shard.dosed[i * more : (i + 1) * more],
                )
            ],
        )
        for shard in manifest.shards
    ]
    return replace(manifest, methods={**manifest.methods, **doses}, shards=shards)
