#include "common/model/weights/placement.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/flavour.h"
#include "common/base/log.h"

namespace dapd {
namespace {

// libdapd_cuda.so from ../lib beside the program, loaded once; null without it.
void* CudaLibrary() {
  static void* const library = []() -> void* {
    const std::string path = CudaLibraryPath();
    if (path.empty()) return nullptr;
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

}  // namespace

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
