"""A byte of a run that is flipped is noticed or harmless, and one more run heals the folder."""

import math
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import assay
import assay.store
import toy_run  # noqa: F401 - registers toy_images and toy_net
from assay.errors import AssayWarning, InputError, PrerequisiteError
from assay.run import run
from assay.suite.spec import Spec

# Files with checksums. Before them, bytes of parquet and safetensors files changed in silence.
pytestmark = pytest.mark.skipif(
    not hasattr(assay.store, "ShardLog"), reason="the files of a run have no checksums"
)
METHODS = [{"integrated_gradients": {"steps": 3}}, "random", {"shuffled": {"of": "saliency"}}]
PROTOCOLS = [{"deletion": {"steps": 3}}, {"sensitivity_n": {"subsets": 3}}]
PAGE = "report.html"  # made from the others, and not read

Content = dict[str, list[tuple[object, ...]]]


def spec() -> Spec:
    return Spec(
        datasets=["toy_images"], models=["toy_net"], methods=METHODS, protocols=PROTOCOLS, limit=20
    )


def content(folder: Path) -> Content:
    """All that users read of a run: tables and maps, comparable bit for bit."""
    results = assay.load(folder)
    assert results.complete
    tables = {"scores": results.scores, "curves": results.curves, "checks": results.checks}
    rows = {
        name: [
            tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row.values())
            for row in table.to_pylist()
        ]
        for name, table in tables.items()
    }
    for method in results.entries.methods:
        maps = results.maps(method)
        rows[method] = [(sample, np.asarray(m).tobytes()) for sample, m in sorted(maps.items())]
    return rows


def read(folder: Path) -> Content | None:
    """The content of a damaged run; None where reading says that something is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssayWarning)
        try:
            results = assay.load(folder)
            return content(folder) if results.complete else None
        except (InputError, PrerequisiteError, AssayWarning):
            return None


def flip(folder: Path, draw: random.Random) -> str:
    """Change one byte of one file; what was changed."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and f.stat().st_size)
    file = draw.choice([f for f in files if f.name != PAGE])
    written = bytearray(file.read_bytes())
    place = draw.randrange(len(written))
    written[place] ^= draw.randrange(1, 256)
    file.write_bytes(written)
    return f"byte {place} of {len(written)} of {file.relative_to(folder)}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(spec(), folder, progress=False)
    return folder


@pytest.mark.parametrize("flips", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_flipped_byte_is_noticed_or_harmless_and_healed(whole, tmp_path, flips, call):
    draw, expected = random.Random(flips), content(whole)
    noticed = 0
    for number in range(flips):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        what = flip(folder, draw)
        found = read(folder)
        verified, _, _ = call("verify", str(folder))
        assert verified in (0, 3), what
        if found is None:
            assert verified == 3, f"{what}: reading notices what `assay verify` does not"
            noticed += 1
        else:
            assert found == expected, f"{what}: other content, without a word"
        run(spec(), folder, progress=False)
        assert content(folder) == expected, f"{what}: not healed"
        assert call("verify", str(folder))[0] == 0, f"{what}: still damaged"
        shutil.rmtree(folder)
    print(f"{noticed} of {flips} noticed by reading")
    assert noticed > flips / 4  # else the bytes that are flipped are not those that are read


@pytest.mark.parametrize("text", ["[]", "\0", "", "datasets: [other]\n"])
def test_a_suite_without_its_checksum_is_not_whole(text, whole, tmp_path, call):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "spec.yaml").write_text(text)
    assert call("verify", str(folder))[0] == 3
    run(spec(), folder, progress=False)
    assert call("verify", str(folder))[0] == 0


def test_a_whole_run_is_verified(whole, call):
    assert call("verify", str(whole))[0] == 0


@pytest.mark.parametrize("maps", [True, False])
def test_a_lost_comparison_with_a_promise_is_made_again(tmp_path, maps):
    folder = tmp_path / "run"
    run(spec(), folder, progress=False, keep_maps=maps)
    expected = assay.load(folder).checks
    log = next((folder / "shards").glob("*.log"))
    written = bytearray(log.read_bytes())
    place = written.index(b'{"kind":"gaps"')
    written[place + 20] ^= 1
    log.write_bytes(written)
    run(spec(), folder, progress=False, keep_maps=maps)
    assert assay.load(folder).checks.equals(expected)


def test_maps_and_pictures_whose_record_was_lost_are_made_again(whole, tmp_path, call):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    expected, lost = content(folder), 0
    for log in sorted((folder / "shards").glob("*.log")):
        written = bytearray(log.read_bytes())
        place = written.find(b'{"kind":"file"')
        while place >= 0:
            written[place + 20] ^= 1
            lost += 1
            place = written.find(b'{"kind":"file"', place + 1)
        log.write_bytes(written)
    assert lost > len(METHODS)
    run(spec(), folder, progress=False)
    assert content(folder) == expected
    records = b"".join(log.read_bytes() for log in (folder / "shards").glob("*.log"))
    assert records.count(b'{"kind":"file"') >= lost
    assert call("verify", str(folder))[0] == 0
