#include "common/kernels/cuda/flash_attention_3.h"

#include "common/kernels/cuda/flash_attention_3_launch.h"
#include "common/kernels/cuda/flash_attention_3_params.h"

namespace dapd {
namespace {

void Check(cudaError_t code) {
  if (code != cudaSuccess) throw LaunchError{code};
}

int AttributeOf(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  Check(cudaGetDevice(&device));
  Check(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

int Multiprocessors() { return AttributeOf(cudaDevAttrMultiProcessorCount); }

// Calls `launch` and returns the error that it throws.
template <typename Launch>
int CodeOf(const Launch& launch) {
  try {
    launch();
    return cudaSuccess;
  } catch (const LaunchError& error) {
    return error.code;
  }
}

void Forward(Flash_fwd_params params, cudaStream_t stream) {
  switch (params.d) {
    case 64:
      return RunFlashAttention3Forward<64>(params, stream);
    case 128:
      return RunFlashAttention3Forward<128>(params, stream);
    case 256:
      return RunFlashAttention3Forward<256>(params, stream);
    default:
      throw LaunchError{cudaErrorInvalidValue};
  }
}

void Backward(Flash_bwd_params params, cudaStream_t stream) {
  const bool is_deterministic = params.deterministic;
  switch (params.d) {
    case 64:
      return is_deterministic
                 ? RunFlashAttention3Backward<64, true>(params, stream)
                 : RunFlashAttention3Backward<64, false>(params, stream);
    case 128:
      return is_deterministic
                 ? RunFlashAttention3Backward<128, true>(params, stream)
                 : RunFlashAttention3Backward<128, false>(params, stream);
    case 256:
      if (is_deterministic) break;
      return RunFlashAttention3Backward<256, false>(params, stream);
    default:
      break;
  }
  throw LaunchError{cudaErrorInvalidValue};
}

}  // namespace

extern "C" int DapdCudaHasFlashAttention3() {
  // The code is for sm_90a, which no other device runs.
  bool is_sm_90 = false;
  CodeOf([&] {
    is_sm_90 = AttributeOf(cudaDevAttrComputeCapabilityMajor) == 9 &&
               AttributeOf(cudaDevAttrComputeCapabilityMinor) == 0;
  });
  return is_sm_90 ? 1 : 0;
}

extern "C" int DapdCudaFlashAttention3Forward(const FlashAttention3Args* args,
                                              void* stream) {
  return CodeOf([&] {
    Forward(ForwardParamsOf(*args, Multiprocessors()),
            static_cast<cudaStream_t>(stream));
  });
}

extern "C" int DapdCudaFlashAttention3Backward(
    const FlashAttention3BackwardArgs* args, void* stream) {
  return CodeOf([&] {
    const auto on = static_cast<cudaStream_t>(stream);
    const FlashAttention3BackwardMemory memory =
        BackwardMemoryOf(args->args.shape, args->is_deterministic);
    Check(cudaMemsetAsync(args->args.memory, 0, memory.cleared, on));
    Backward(BackwardParamsOf(*args, Multiprocessors()), on);
  });
}

}  // namespace dapd
