"""Random numbers: published answers, distributions, and the same bits on every way to them."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch import Tensor

from assay.types import inverse_normal as inverse
from assay.types.inverse_normal import inverse_normal
from assay.types.random_numbers import (
    BLOCKS_AT_ONCE,
    WORDS,
    Stream,
    drawn,
    drawn_elsewhere,
    philox,
)

CPU = torch.device("cpu")
ONES = "f" * 16

# Counter, key and answer of `philox4x64` with 10 rounds in the file `kat_vectors` of Random123.
KNOWN = [
    (
        ["0"] * 4, ["0"] * 2,
        ["16554d9eca36314c", "db20fe9d672d0fdc", "d7e772cee186176b", "7e68b68aec7ba23b"],
    ),
    (
        [ONES] * 4, [ONES] * 2,
        ["87b092c3013fe90b", "438c3c67be8d0224", "9cc7d7c69cd777b6", "a09caebf594f0ba0"],
    ),
    (
        ["243f6a8885a308d3", "13198a2e03707344", "a4093822299f31d0", "082efa98ec4e6c89"],
        ["452821e638d01377", "be5466cf34e90c6c"],
        ["a528f45403e61d95", "38c72dbd566e9788", "a5a1610e72fd18b5", "57bd43b5e52b7fe6"],
    ),
]  # fmt: skip


def signed(word: str) -> Tensor:
    number = int(word, 16)
    return torch.tensor([number - 2**64 if number >= 2**63 else number])


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_the_generator_gives_the_published_answers(
    counter: list[str], key: list[str], answer: list[str]
) -> None:
    a, b, c, d = map(signed, counter)
    made = philox((a, b, c, d), (signed(key[0]), signed(key[1])))
    assert [f"{int(word) % 2**64:016x}" for word in made] == answer


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000, 2**17 + 3])
def test_torch_and_numpy_draw_the_same_bits(count: int, normal: bool) -> None:
    """The arithmetic for other devices, on a CPU; keys with and without the highest bit."""
    streams = [Stream.of("some", k) for k in range(4)]
    assert len({key >> 63 for stream in streams for key in stream.key}) == 2
    ours = drawn(streams, count, CPU, normal=normal)
    assert torch.equal(ours, drawn_elsewhere(streams, count, CPU, normal=normal))
    assert torch.equal(ours, drawn(streams, count, CPU, normal=normal, threads=2))


def test_steps_on_other_devices_do_not_show() -> None:
    count = WORDS * BLOCKS_AT_ONCE // 4 + 11  # more than one step for eight streams
    streams = [Stream.of(k) for k in range(8)]
    assert torch.equal(drawn_elsewhere(streams, count, CPU), drawn(streams, count, CPU))


def test_several_threads_draw_the_same_bits() -> None:
    streams, count = [Stream.of(k) for k in range(3)], 2**19
    assert torch.equal(drawn(streams, count, CPU), drawn(streams, count, CPU, threads=3))


def test_a_stream_is_read_from_any_place() -> None:
    stream = Stream.of("x")
    whole = stream.words(1000)
    assert (stream.words(200, 800) == whole[800:]).all()
    assert (stream.words(3) == whole[:3]).all()


def test_uniform_numbers_are_multiples_of_two_to_the_minus_24() -> None:
    numbers = Stream.of("u").uniform(400_000).double().numpy()
    assert ((numbers * 2**24) % 1 == 0).all()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert scipy.stats.kstest(numbers, "uniform").pvalue > 1e-3
    counts = np.bincount((Stream.of("v").uniform(256_000).numpy() * 256).astype(int))
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_streams_of_different_parts_are_not_correlated() -> None:
    rows = drawn([Stream.of(0, k, "p") for k in range(40)], 4000, CPU, normal=True)
    correlations = np.corrcoef(rows.double().numpy())[np.triu_indices(40, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(4000)


def test_normal_numbers_are_the_inverse_of_the_uniform_ones() -> None:
    ends = torch.arange(2**18, dtype=torch.int32)
    middle = torch.arange(2**23 - 2**17, 2**23 + 2**17, dtype=torch.int32)
    spread = torch.arange(0, 2**24, 61, dtype=torch.int32)
    bits = torch.cat([ends, 2**24 - 1 - ends, middle, spread])
    exact = scipy.special.ndtri((bits.double().numpy() + 0.5) / 2**24)
    assert np.abs(inverse_normal(bits).double().numpy() - exact).max() < 2e-6
    assert torch.equal(inverse_normal(bits), -inverse_normal(2**24 - 1 - bits))


def test_every_step_of_normal_numbers_is_rounded_as_ieee_754_says() -> None:
    """NumPy, whose single-precision operations are all rounded correctly, does the same steps."""
    bits = torch.arange(0, 2**24, 37, dtype=torch.int32)
    odd = (2 * bits.numpy() + 1 - 2**24).astype(np.float32)
    mantissa, exponent = np.frexp(np.float32(2**24) - np.abs(odd))
    mantissa = mantissa * np.float32(2)  # in [1, 2)
    root_two = np.float32(2**0.5)
    ratio = (mantissa - root_two) / (mantissa + root_two)
    series = _horner(ratio * ratio, (2 / 7, 2 / 5, 2 / 3, 2.0)) * ratio
    halvings = (np.float32(25.5) - exponent).astype(np.float32)
    t = np.sqrt(halvings * np.float32(math.log(2)) - series)
    size = _horner(t, inverse._ABOVE) / _horner(t, inverse._BELOW)
    size *= np.maximum(t - np.float32(math.sqrt(math.log(2))), np.float32(0))
    assert np.array_equal(inverse_normal(bits).numpy(), np.copysign(size, odd))


def _horner(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    value = np.zeros_like(x)
    for coefficient in coefficients:
        value = value * x + np.float32(coefficient)
    return value


def test_normal_numbers_are_normal() -> None:
    numbers = drawn([Stream.of("n")], 400_000, CPU, normal=True)[0].double().numpy()
    assert scipy.stats.kstest(numbers, "norm").pvalue > 1e-3
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        values = numbers**power
        assert abs(values.mean() - moment) < 4 * values.std() / math.sqrt(len(values))


@pytest.mark.parametrize("units", [1, 2, 49, 3000])
def test_orders_are_permutations_and_the_first_of_more(units: int) -> None:
    orders = Stream.of("o").orders(50, units)
    assert (np.sort(orders, axis=1) == np.arange(units)).all()
    assert (Stream.of("o").orders(7, units) == orders[:7]).all()


def test_all_orders_are_equally_likely() -> None:
    orders = Stream.of("all").orders(24_000, 4)
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("size", [0, 1, 3, 6])
def test_subsets_have_their_size_and_are_equally_likely(size: int) -> None:
    sets = Stream.of("sets").subsets(20_000, 6, size)
    assert (sets.sum(1) == size).all()
    assert (Stream.of("sets").subsets(5, 6, size) == sets[:5]).all()
    counts = np.unique(sets, axis=0, return_counts=True)[1]
    assert len(counts) == math.comb(6, size)
    if len(counts) > 1:
        assert scipy.stats.chisquare(counts).pvalue > 1e-3
