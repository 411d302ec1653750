// Copies of boxes of a matrix from the device's memory to shared memory, which
// one thread starts and the copy engine does (TMA, sm_90). (PTX ISA,
// "cp.async.bulk.tensor"; CUDA driver API, "cuTensorMapEncodeTiled".)
#pragma once

#include <cuda_runtime.h>

#ifdef __CUDACC__
#include <cuda.h>
#endif

#include <cstdint>

#include "common/kernels/bfloat16.h"
#include "common/kernels/cuda/cluster_messages.cuh"
#include "common/kernels/cuda/device.cuh"

namespace dapd {

// A row of a box: 64 numbers, 128 bytes.
inline constexpr int kBoxCols = 64;

// The rows of a box in shared memory, one behind the other. The 16-byte pieces
// of row r are permuted: piece p lies at place p ^ (r % 8), so that the reads
// of one piece of eight rows touch all banks. A box must be aligned to 1,024
// bytes.
template <int kRows>
struct alignas(1024) Box {
  static_assert(kRows % 8 == 0);
  BFloat16 number[kRows][kBoxCols];
};

// Describes a matrix [rows, cols] of bfloat16 numbers to the copy engine. It
// must be a parameter of the kernel (__grid_constant__).
#ifdef __CUDACC__
using BoxedMatrix = CUtensorMap;
#else
struct BoxedMatrix {
  const BFloat16* first;
  int64_t rows;
  int64_t cols;
  int64_t stride;
};
#endif

// Describes a matrix whose rows are `stride` numbers apart, for boxes of
// `box_rows` rows. `first` and rows are aligned to 16 bytes.
inline cudaError_t DescribeMatrix(const void* first,
                                  int64_t rows,
                                  int64_t cols,
                                  int64_t stride,
                                  [[maybe_unused]] int box_rows,
                                  BoxedMatrix* matrix) {
#ifdef __CUDACC__
  // The driver's library is not linked, because a machine without a GPU has
  // none.
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",
                                         &found,
                                         12000,
                                         cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
      found = nullptr;
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(cols),
                              static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) *
                                sizeof(BFloat16)};
  const cuuint32_t box[] = {kBoxCols, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result = encode(matrix,
                                 CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                 2,
                                 const_cast<void*>(first),
                                 sizes,
                                 strides,
                                 box,
                                 steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
#else
  *matrix = {static_cast<const BFloat16*>(first), rows, cols, stride};
  return cudaSuccess;
#endif
}

// The thread that has called InitCount calls this before its first copy, so
// that the copy engine finds the counts.
__device__ inline void ShowCountsToCopies() {
#ifdef __CUDACC__
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Begins to copy the box whose first number is at (row, col). All of its bytes
// count at `arrived`; what lies outside of the matrix becomes zero. The copy
// sees what WaitForLaunchBefore has waited for.
template <int kRows>
__device__ inline void CopyBox(const BoxedMatrix& matrix,
                               int row,
                               int col,
                               Box<kRows>* to,
                               MessageCount* arrived) {
#ifdef __CUDACC__
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(SharedAddress(to)),
      "l"(&matrix),
      "r"(col),
      "r"(row),
      "r"(SharedAddress(arrived))
      : "memory");
#else
  constexpr int kPiece = 8;  // numbers of 16 bytes
  for (int r = 0; r < kRows; ++r) {
    Vector8<BFloat16> pieces[kBoxCols / kPiece] = {};
    for (int p = 0; p < kBoxCols / kPiece; ++p) {
      if (row + r >= matrix.rows || col + p * kPiece >= matrix.cols) continue;
      pieces[p ^ (r % 8)] =
          Load8(matrix.first + (row + r) * matrix.stride + col + p * kPiece);
    }
    fake::SendBytes(static_cast<int>(__clusterRelativeBlockRank()),
                    to->number[r],
                    pieces,
                    sizeof(pieces),
                    arrived);
  }
#endif
}

}  // namespace dapd
