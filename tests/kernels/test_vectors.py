"""Vectors and tiles do what NumPy does with eight numbers and with a matrix of eight rows."""

import numpy as np
import pytest
from numba import njit

from permalign.kernels.compiled import vectors
from permalign.kernels.compiled.vectors import LANES


@njit
def vector_operations(first, second, results):
    one, other = vectors.load(first, LANES), vectors.load(second, 3)
    vectors.store(results, 0, vectors.added(one, other))
    vectors.store(results, LANES, vectors.multiplied(one, other))
    vectors.store(results, 2 * LANES, vectors.scaled(one, 0.5))
    vectors.store(results, 3 * LANES, vectors.zeros())
    return vectors.total(one)


@njit
def tile_operations(matrix, factors, turned, outer, combined):
    tile = vectors.load_tile(matrix, 2, matrix.shape[1])
    vectors.store_tile(turned, 0, LANES, vectors.transposed(tile))
    row = vectors.load(factors, 0)
    vectors.store_tile(outer, 0, LANES, vectors.add_outer_product(tile, factors, 1, 2, row))
    vectors.store_tile(outer, LANES * LANES, LANES, vectors.zero_tile())
    vectors.store(combined, 0, vectors.combined_rows(tile, factors, 5))


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_vectors(random):
    first, second = random.normal(size=(3, LANES)), random.normal(size=2 * LANES)
    results = np.full((4, LANES), np.nan)
    total = vector_operations(first, second, results)
    one, other = first[1], second[3 : 3 + LANES]
    np.testing.assert_allclose(results, [one + other, one * other, one / 2, np.zeros(LANES)])
    np.testing.assert_allclose(total, one.sum())


def test_tiles(random):
    matrix, factors = random.normal(size=(LANES, LANES + 4)), random.normal(size=2 * LANES)
    turned, outer, combined = np.empty((LANES, LANES)), np.empty((2, LANES, LANES)), np.empty(LANES)
    tile_operations(matrix, factors, turned, outer, combined)
    tile, column = matrix[:, 2 : 2 + LANES], factors[5 : 5 + LANES]
    np.testing.assert_array_equal(turned, tile.T)
    np.testing.assert_allclose(outer[0], tile + np.outer(factors[1::2], factors[:LANES]))
    np.testing.assert_array_equal(outer[1], 0)
    np.testing.assert_allclose(combined, column @ tile)
