#include "common/model/weights/placement.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "common/base/cuda_environment.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// libdapd_cuda.so from ../lib beside the program, loaded once; null without it.
void* CudaLibrary() {
  static void* const library = []() -> void* {
    std::error_code error;
    const std::filesystem::path program =
        std::filesystem::read_symlink("/proc/self/exe", error);
    const std::string path =
        program.parent_path().parent_path() / "lib" / "libdapd_cuda.so";
    if (!std::filesystem::exists(path, error)) return nullptr;
    void* opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (opened == nullptr) {
      LogWarning(absl::StrCat("CUDA cannot be used: ", ::dlerror()));
    }
    return opened;
  }();
  return library;
}

// 0 without that library, a driver or a GPU.
int NumCudaDevices() {
  auto* count = reinterpret_cast<int (*)()>(CudaSymbol("DapdCudaDeviceCount"));
  return count == nullptr ? 0 : count();
}

// Without the driver's own device node there is nothing to load CUDA for.
bool HasNvidiaDriver() {
  std::error_code error;
  return std::filesystem::exists("/dev/nvidiactl", error);
}

// Of the current device, for CatchTorch.
absl::Status CheckCudaDevice() {
  auto* check = reinterpret_cast<int (*)(char*)>(CudaSymbol("DapdCudaCheck"));
  char reason[256] = "";
  if (check == nullptr || check(reason) == 0) return absl::OkStatus();
  return absl::InternalError(reason);
}

void SetUpCuda(bool deterministic) {
  at::Context& context = at::globalContext();
  // Its attention builds a plan for every shape, of up to half a second each,
  // and keeps them all.
  context.setSDPUseCuDNN(false);
  // Partial sums in bfloat16 lose what the float32 of a long sum is for.
  context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false,
                                      /*allow_splitk=*/!deterministic);
  if (!deterministic) return;
  // LibTorch can forbid split products in cuBLASLt's only.
  context.setBlasPreferredBackend(at::BlasBackend::Cublaslt);
  // Flash attention's backward pass reads this, index_add and others do.
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Nothing reads what it has not written.
  context.setDeterministicFillUninitializedMemory(false);
}

}  // namespace

absl::StatusOr<at::Device> OpenDevice(const ModelSection& model) {
  SetCudaEnvironment(model.deterministic);  // the programs have done so
  ASSIGN_OR_RETURN(const at::Device device, ParseDevice(model.device));
  if (device.is_cuda()) {
    SetUpCuda(model.deterministic);
    SetDeviceCheck(CheckCudaDevice);
  }
  return device;
}

void* CudaSymbol(const char* name) {
  void* library = CudaLibrary();
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

absl::StatusOr<at::Device> ParseDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  const bool has_cuda =
      (name == "cuda" || HasNvidiaDriver()) && NumCudaDevices() > 0;
  if (name == "auto") return at::Device(has_cuda ? at::kCUDA : at::kCPU);
  if (name != "cuda") {
    return ConfigError(
        absl::StrCat("model.device '", name, "' is none of auto, cpu, cuda"));
  }
  if (!has_cuda) {
    return ConfigError(
        "model.device is cuda, but no CUDA device can be used: the build needs "
        "DAPD_CUDA=ON and the machine a GPU with its driver; or set "
        "model.device to cpu");
  }
  return at::Device(at::kCUDA);
}

absl::StatusOr<at::ScalarType> ParsePrecision(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  return ConfigError(absl::StrCat(
      "model.precision '", name, "' is neither float32 nor bfloat16"));
}

const char* PrecisionName(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bfloat16" : "float32";
}

void SetComputeThreads(int64_t num_threads) {
  if (num_threads > 0) at::set_num_threads(static_cast<int>(num_threads));
}

}  // namespace dapd
