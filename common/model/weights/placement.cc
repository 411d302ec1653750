#include "common/model/weights/placement.h"

#include "absl/strings/str_cat.h"

#include "common/base/cuda_environment.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/thread_share.h"
#include "common/gpus/cuda_backend.h"
#include "common/gpus/cuda_device.h"
#include "common/gpus/gpu_report.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// Checks that this process can compute on a GPU. Asks the driver before it
// loads CUDA's libraries, which take gigabytes.
absl::Status CudaIsUsable() {
  RETURN_IF_ERROR(FindGpus().usable);
  void* library = nullptr;
  RETURN_IF_ERROR(LoadCudaBackend(&library));
  const auto count = reinterpret_cast<decltype(&DapdCudaDeviceCount)>(
      CudaSymbol("DapdCudaDeviceCount"));
  const int devices = count == nullptr ? 0 : count();
  if (devices < 0) {
    return absl::FailedPreconditionError(
        "LibTorch was asked about CUDA before libdapd_cuda.so was loaded and "
        "has not used it since; this is a bug in the program");
  }
  if (devices == 0) {
    return absl::FailedPreconditionError(
        "the driver finds GPUs, but CUDA's runtime finds none; nvidia-smi says "
        "more");
  }
  return absl::OkStatus();
}

// Checks the current device, for CatchTorch.
absl::Status CheckCudaDevice() {
  const auto check =
      reinterpret_cast<decltype(&DapdCudaCheck)>(CudaSymbol("DapdCudaCheck"));
  char reason[kCudaReasonBytes] = "";
  if (check == nullptr || check(reason) == 0) return absl::OkStatus();
  return absl::InternalError(reason);
}

}  // namespace

void SetUpCuda(bool deterministic, at::Context& context) {
  // cuDNN's attention builds a plan for every shape, in up to half a second
  // each, and keeps all plans.
  context.setSDPUseCuDNN(false);
  // Partial sums in bfloat16 would lose the precision of a long float32 sum.
  context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false,
                                      /*allow_splitk=*/!deterministic);
  if (!deterministic) return;
  // LibTorch can forbid split products only in cuBLASLt.
  context.setBlasPreferredBackend(at::BlasBackend::Cublaslt);
  // Flash attention's backward pass, index_add and others read this setting.
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // This is not needed, because no code reads memory before writing it.
  context.setDeterministicFillUninitializedMemory(false);
}

absl::StatusOr<at::Device> OpenDevice(const ModelSection& model) {
  SetCudaEnvironment(model.deterministic);  // already set in the programs
  ASSIGN_OR_RETURN(const at::Device device, DeviceOf(model.device));
  if (device.is_cuda()) {
    SetUpCuda(model.deterministic, at::globalContext());
    SetDeviceCheck(CheckCudaDevice);
  }
  return device;
}

absl::StatusOr<at::Device> DeviceOf(DeviceChoice choice) {
  if (choice == DeviceChoice::kCpu) return at::Device(at::kCPU);
  const absl::Status usable = CudaIsUsable();
  if (usable.ok()) return at::Device(at::kCUDA);
  const std::string why(usable.message());
  if (choice == DeviceChoice::kCuda || absl::IsInvalidArgument(usable)) {
    return ConfigError(
        absl::StrCat("model.device is ",
                     NameOf(choice),
                     ", but no GPU can be used: ",
                     why,
                     ". To run without a GPU, set model.device to cpu"));
  }
  if (!absl::IsNotFound(usable)) {
    LogWarning(absl::StrCat("computing on the CPU: ", why));
  }
  return at::Device(at::kCPU);
}

at::ScalarType TypeOf(Precision precision) {
  return precision == Precision::kFloat32 ? at::kFloat : at::kBFloat16;
}

Precision PrecisionOf(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? Precision::kBfloat16 : Precision::kFloat32;
}

void SetComputeThreads(int64_t num_threads) {
  at::set_num_threads(
      static_cast<int>(num_threads > 0 ? num_threads : ThreadsOfEach(1)));
}

}  // namespace dapd
