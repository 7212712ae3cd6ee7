"""Matrices that stay packed: layout, products, groups, rounding, rows in any batch."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import packed_linear as cpu
from treadle.kernels.inputs import activations, strided, weights
from treadle.kernels.reference import block_float
from treadle.kernels.reference import packed_linear as reference
from treadle.kernels.reference.packed_linear import MatrixKind
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import packed_linear as triton_module

triton = ops_of(triton_module)

KINDS = list(MatrixKind)


def packed(
    kind: MatrixKind, rows: int, columns: int
) -> tuple[reference.PackedMatrix, torch.Tensor]:
    """A matrix, and what it holds in float32."""
    generator = torch.Generator().manual_seed(rows + columns)

    def integers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator).to(torch.uint8)

    if kind is MatrixKind.FLOAT32:
        dense = weights(rows, columns)
        return reference.pack_float32(dense), dense
    if kind is MatrixKind.FP8:
        codes = integers(0, 127, rows, columns) | (integers(0, 2, rows, columns) << 7)
        scales = integers(110, 120, -(-rows // 32), columns // 32)
        values = codes.view(torch.float8_e4m3fn)
        return reference.pack_fp8(values, scales), block_float.fp8_tiles(values, scales)
    codes = integers(0, 256, rows, columns // 2)
    scales = integers(118, 126, rows, columns // 32)
    return reference.pack_fp4(codes, scales), block_float.fp4_matrix(codes, scales)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(16, 32), (96, 64), (7, 96), (40, 320)])
def test_packing_keeps_every_value(kind, shape):
    w, dense = packed(kind, *shape)
    assert torch.equal(reference.unpack_matrix(w), dense)


def test_joined_matrices_are_one_after_the_other():
    parts = [packed(MatrixKind.FP8, rows, 64) for rows in (32, 48, 7)]
    joined = reference.join_packed([w for w, _ in parts])
    assert torch.equal(reference.unpack_matrix(joined), torch.cat([x for _, x in parts]))
    with pytest.raises(ValueError, match="cannot join"):
        reference.join_packed([parts[2][0], parts[0][0]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 150])
@pytest.mark.parametrize("shape", [(16, 32), (7, 96), (200, 256)])
def test_cpu_product_agrees_with_the_reference(isa, kind, shape, rows):
    w, dense = packed(kind, *shape)
    x = activations(rows, shape[1])
    want = (x.double() @ dense.double().T).float()
    assert_close(cpu.linear_packed(x, w, is_rounding=False), want, "packed_linear")
    assert_close(cpu.linear_packed(strided(x), w, is_rounding=False), want, "packed_linear")
    assert_close(reference.linear_packed(x, w, is_rounding=False), want, "packed_linear")


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_that_of_fp8(isa, kind):
    w, _ = packed(kind, 48, 64)
    x = activations(9, 64)
    rounded = block_float.fp8_round(x)
    got = cpu.linear_packed(x, w, is_rounding=True)
    assert torch.equal(got, cpu.linear_packed(rounded, w, is_rounding=False))
    assert_close(got, reference.linear_packed(x, w, is_rounding=True), "packed_linear")


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_features_reads_its_own_inputs(isa, kind):
    w, dense = packed(kind, 96, 64)
    x = activations(6, 3 * 64)
    want = torch.cat([x[:, g * 64 :][:, :64] @ dense[g * 32 :][:32].T for g in range(3)], 1)
    assert_close(cpu.linear_packed(x, w, is_rounding=False, groups=3), want, "packed_linear")
    assert_close(reference.linear_packed(x, w, is_rounding=False, groups=3), want, "packed_linear")


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_the_same_bits_in_any_batch(isa, kind):
    w, _ = packed(kind, 200, 256)
    x = activations(300, 256)
    whole = cpu.linear_packed(x, w, is_rounding=True)
    for rows in (slice(0, 1), slice(7, 60), slice(255, 258), slice(299, 300)):
        assert torch.equal(cpu.linear_packed(x[rows], w, is_rounding=True), whole[rows])


def test_vector_instruction_sets_agree_to_the_bit(use_isa, tmp_path, monkeypatch):
    w, _ = packed(MatrixKind.FP8, 96, 256)
    x = activations(9, 256)
    found = []
    for name in ("avx2", "avx512"):
        use_isa(name, tmp_path, monkeypatch)
        found.append(cpu.linear_packed(x, w, is_rounding=True))
    assert torch.equal(*found)


@pytest.mark.parametrize("kind", [MatrixKind.FP8, MatrixKind.FP4])
def test_every_code_and_scale_is_decoded(isa, kind):
    """One weight of each code at each scale; a weight that is not a number spoils its row alone."""
    codes = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, 32 if kind == 1 else 16)
    for scale in (0, 1, 127, 200, 255):
        if kind is MatrixKind.FP8:
            scales = torch.full((8, 1), scale, dtype=torch.uint8)
            w = reference.pack_fp8(codes.view(torch.float8_e4m3fn), scales)
        else:
            w = reference.pack_fp4(codes, torch.full((256, 1), scale, dtype=torch.uint8))
        x = torch.zeros(2, 32)
        x[0, 3], x[1, 4] = 1.0, -1.0
        got = cpu.linear_packed(x, w, is_rounding=False)
        want = x @ reference.unpack_matrix(w).T
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_sizes_that_disagree_are_refused():
    w, _ = packed(MatrixKind.FP8, 48, 64)
    for module in (cpu, reference):
        with pytest.raises(ValueError, match="does not fit"):
            module.linear_packed(torch.zeros(2, 32), w, is_rounding=False)
        with pytest.raises(ValueError, match="whole blocks"):
            module.linear_packed(torch.zeros(2, 128), w, is_rounding=False, groups=2)
    with pytest.raises(ValueError, match="scales"):
        reference.pack_fp4(torch.zeros(16, 16, dtype=torch.uint8), w.data[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 5, 21])
@pytest.mark.parametrize("shape", [(16, 32), (7, 96), (72, 64)])
def test_triton_product_agrees_with_the_reference(kind, shape, rows):
    w, dense = packed(kind, *shape)
    x = activations(rows, shape[1])
    want = (x.double() @ dense.double().T).float()
    assert_close(triton.linear_packed(x, w, is_rounding=False), want, "packed_linear")
    assert_close(triton.linear_packed(strided(x), w, is_rounding=False), want, "packed_linear")


@pytest.mark.parametrize("kind", KINDS)
def test_triton_adds_the_shares_of_a_long_sum(kind):
    w, dense = packed(kind, 7, 1088)
    x = activations(2, 1088)
    want = (x.double() @ dense.double().T).float()
    assert_close(triton.linear_packed(x, w, is_rounding=False), want, "packed_linear")


@pytest.mark.parametrize("kind", KINDS)
def test_triton_rounding_is_that_of_fp8(kind):
    w, _ = packed(kind, 48, 64)
    x = activations(9, 64)
    got = triton.linear_packed(strided(x), w, is_rounding=True)
    assert_close(got, reference.linear_packed(x, w, is_rounding=True), "packed_linear")


@pytest.mark.parametrize("kind", KINDS)
def test_triton_group_of_features_reads_its_own_inputs(kind):
    w, dense = packed(kind, 96, 64)
    x = activations(6, 3 * 64)
    want = torch.cat([x[:, g * 64 :][:, :64] @ dense[g * 32 :][:32].T for g in range(3)], 1)
    got = triton.linear_packed(x, w, is_rounding=False, groups=3)
    assert_close(got, want, "packed_linear")


@pytest.mark.parametrize("kind", KINDS)
def test_triton_row_is_the_same_bits_in_any_batch(kind):
    w, _ = packed(kind, 72, 128)
    x = activations(70, 128)
    whole = triton.linear_packed(x, w, is_rounding=True)
    for rows in (slice(0, 1), slice(7, 30), slice(69, 70)):
        assert torch.equal(triton.linear_packed(x[rows], w, is_rounding=True), whole[rows])


@pytest.mark.parametrize("kind", [MatrixKind.FP8, MatrixKind.FP4])
def test_triton_decodes_every_code_and_scale(kind):
    codes = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, 32 if kind == 1 else 16)
    for scale in (1, 127, 255):
        if kind is MatrixKind.FP8:
            scales = torch.full((8, 1), scale, dtype=torch.uint8)
            w = reference.pack_fp8(codes.view(torch.float8_e4m3fn), scales)
        else:
            w = reference.pack_fp4(codes, torch.full((256, 1), scale, dtype=torch.uint8))
        x = torch.zeros(2, 32)
        x[0, 3], x[1, 4] = 1.0, -1.0
        want = x @ reference.unpack_matrix(w).T
        for is_rounding in (False, True):
            got = triton.linear_packed(x, w, is_rounding=is_rounding)
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_triton_refuses_sizes_that_disagree():
    w, _ = packed(MatrixKind.FP8, 48, 64)
    with pytest.raises(ValueError, match="does not fit"):
        triton.linear_packed(torch.zeros(2, 32), w, is_rounding=False)
