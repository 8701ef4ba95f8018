"""Random numbers that are the same on every machine: word i = Philox4x64(key=(seed, purpose),
counter=(., index, epoch)).

A draw is a pure function of (seed, purpose, epoch, index), so there is no generator state to
save: a position is enough to resume. Only numpy's raw bit streams are used (numpy keeps those
stable; its distributions may change).
"""

from __future__ import annotations

import math
import zlib

from .lazy import np

MAX_SEED = _MASK = 2**64 - 1


def check_seed(seed: int) -> int:
    """Returns seed, or raises if it is not valid."""
    if (
        isinstance(seed, bool)
        or not isinstance(seed, (int, np.integer))
        or not 0 <= seed <= MAX_SEED
    ):
        raise ValueError(f"seed is {seed!r}; accepted: an integer from 0 to 2**64 - 1")
    return int(seed)


def words(n: int, seed: int, purpose: str, epoch: int = 0, index: int = 0) -> np.ndarray:
    """n independent uint64 words."""
    key = np.array([check_seed(seed), zlib.crc32(purpose.encode())], dtype=np.uint64)
    counter = np.array([0, index, epoch, 0], dtype=np.uint64)
    return np.asarray(np.random.Philox(key=key, counter=counter).random_raw(n), dtype=np.uint64)


def uniforms(n: int, seed: int, purpose: str, epoch: int = 0, index: int = 0) -> np.ndarray:
    """n float64 in [0, 1): the upper 53 bits of a word times 2**-53."""
    return (words(n, seed, purpose, epoch, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(n: int, seed: int, purpose: str, epoch: int = 0) -> np.ndarray:
    """A random order of 0..n-1: argsort of n random words (ties have a probability of about n^2 / 2^65)."""
    return np.argsort(words(n, seed, purpose, epoch), kind="stable").astype(np.int64)


def normal_pair(seed: int, purpose: str, epoch: int = 0, index: int = 0) -> tuple[float, float]:
    """(u, g): u uniform in [0, 1), g = sqrt(-2 log(1 - a)) cos(2 pi b) normal (Box and Muller)."""
    if not (0 <= epoch <= MAX_SEED and 0 <= index <= MAX_SEED):
        raise ValueError(f"epoch is {epoch} and index {index}; accepted: 0 to 2**64 - 1")
    four = four_words(check_seed(seed), zlib.crc32(purpose.encode()), epoch, index)
    u, a, b = [(word >> 11) * 2.0**-53 for word in four[:3]]
    return u, math.sqrt(-2.0 * math.log(1.0 - a)) * math.cos(2.0 * math.pi * b)


def four_words(seed: int, purpose: int, epoch: int, index: int) -> tuple[int, int, int, int]:
    """The first four of `words`. numpy takes three to four times as long, mostly to construct a generator. The
    constants are those of Philox4x64-10 (Salmon et al. 2011)."""
    a, b, c, d = 1, index, epoch, 0  # numpy counts before it draws
    for _ in range(10):
        low, high = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b = (high >> 64) ^ b ^ seed, high & _MASK
        c, d = (low >> 64) ^ d ^ purpose, low & _MASK
        seed = (seed + 0x9E3779B97F4A7C15) & _MASK
        purpose = (purpose + 0xBB67AE8584CAA73B) & _MASK
    return a, b, c, d


def normals(n: int, seed: int, purpose: str) -> np.ndarray:
    """n standard normal float64, by the same rule as normal_pair."""
    u = uniforms(2 * n, seed, purpose)
    return np.sqrt(-2.0 * np.log1p(-u[:n])) * np.cos(2.0 * math.pi * u[n:])
