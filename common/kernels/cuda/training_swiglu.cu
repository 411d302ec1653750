#include "common/kernels/cuda/training_launch.cuh"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/training_row_math.h"

namespace dapd {
namespace {

// The vector of a row that a thread computes; false if it computes none.
struct Place {
  int64_t row;
  int64_t column;
};
__device__ bool FindPlace(const GatedRowsArgs& args, Place* place) {
  const int64_t vectors = args.size / kRowVector;
  const int64_t vector =
      static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  *place = {vector / vectors, vector % vectors * kRowVector};
  return vector < args.rows * vectors;
}

template <typename T>
__global__ __launch_bounds__(kRowThreads) void GatedRowsKernel(
    GatedRowsArgs args) {
  Place place;
  if (!FindPlace(args, &place)) return;
  const int64_t at = place.row * args.in_stride + place.column;
  const Vector8<T> gates = Load8(static_cast<const T*>(args.gate) + at);
  const Vector8<T> ups = Load8(static_cast<const T*>(args.up) + at);
  Vector8<T> out;
  for (int k = 0; k < kRowVector; ++k) {
    out.value[k] = Gated<T>(ToFloat(gates.value[k]), ToFloat(ups.value[k]));
  }
  Store8(static_cast<T*>(args.out) + place.row * args.out_stride + place.column,
         out);
}

template <typename T>
__global__ __launch_bounds__(kRowThreads) void GatedRowsBackwardKernel(
    GatedRowsArgs args) {
  Place place;
  if (!FindPlace(args, &place)) return;
  const int64_t at = place.row * args.in_stride + place.column;
  Vector8<T> gates = Load8(static_cast<const T*>(args.gate) + at);
  Vector8<T> ups = Load8(static_cast<const T*>(args.up) + at);
  const Vector8<T> grads = Load8(static_cast<const T*>(args.out) +
                                 place.row * args.out_stride + place.column);
  for (int k = 0; k < kRowVector; ++k) {
    const GatedGradients found = GatedBackward(ToFloat(grads.value[k]),
                                               ToFloat(gates.value[k]),
                                               ToFloat(ups.value[k]));
    gates.value[k] = FromFloat<T>(found.gate);
    ups.value[k] = FromFloat<T>(found.up);
  }
  Store8(static_cast<T*>(args.gate) + at, gates);
  Store8(static_cast<T*>(args.up) + at, ups);
}

int64_t BlocksFor(const GatedRowsArgs& args) {
  return NumBlocks(args.rows * (args.size / kRowVector), kRowThreads);
}

}  // namespace

extern "C" int DapdCudaGatedRows(const GatedRowsArgs* args,
                                 CudaNumber number,
                                 void* stream) {
  return LaunchRows<GatedRowsKernel<float>, GatedRowsKernel<BFloat16>>(
      *args, BlocksFor(*args), number, stream);
}

extern "C" int DapdCudaGatedRowsBackward(const GatedRowsArgs* args,
                                         CudaNumber number,
                                         void* stream) {
  return LaunchRows<GatedRowsBackwardKernel<float>,
                    GatedRowsBackwardKernel<BFloat16>>(
      *args, BlocksFor(*args), number, stream);
}

}  // namespace dapd
