#include "common/gpus/cuda_backend.h"

#include <dlfcn.h>

#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/flavour.h"

namespace dapd {
namespace {

struct Loaded {
  void* handle = nullptr;
  absl::Status status;
};

Loaded Load() {
  const absl::StatusOr<std::string> path = CudaBackendPath();
  if (!path.ok()) return {.status = path.status()};
  void* handle = ::dlopen(path->c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle != nullptr) return {.handle = handle};
  const char* error = ::dlerror();
  const std::string why = error == nullptr ? "no reason was given" : error;
  return {
      .status = absl::FailedPreconditionError(absl::StrCat(
          *path, " cannot be loaded: ", why, "; ", MissingLibraryAdvice(why)))};
}

}  // namespace

absl::StatusOr<std::string> CudaBackendPath() {
  if (std::string path = CudaLibraryPath(); !path.empty()) return path;
  return absl::FailedPreconditionError(
      "this build has no CUDA backend; deploy/install.sh --cuda and "
      "deploy/build.sh make one, and images are built with the target cuda");
}

absl::Status LoadCudaBackend(void** handle) {
  static const Loaded loaded = Load();
  *handle = loaded.handle;
  return loaded.status;
}

void* CudaSymbol(const char* name) {
  void* library = nullptr;
  if (!LoadCudaBackend(&library).ok() || library == nullptr) return nullptr;
  return ::dlsym(library, name);
}

std::string MissingLibraryAdvice(const std::string& loader_message) {
  if (absl::StartsWith(loader_message, "libtorch_cuda") ||
      absl::StartsWith(loader_message, "libc10_cuda")) {
    return "torch is a CPU build, which has no such library; install a CUDA "
           "build of it";
  }
  for (const auto& [library, name, package] :
       {std::tuple{"libnccl.", "NCCL", "nvidia-nccl-cu13"},
        {"libcudnn", "cuDNN", "nvidia-cudnn-cu13"},
        {"libcublas", "cuBLAS", "nvidia-cublas"},
        {"libcudart.", "CUDA's runtime", "nvidia-cuda-runtime"},
        {"libcusparse", "cuSPARSE", "nvidia-cusparse"},
        {"libcusolver", "cuSOLVER", "nvidia-cusolver"},
        {"libcufft", "cuFFT", "nvidia-cufft"},
        {"libcurand", "cuRAND", "nvidia-curand"},
        {"libnvshmem", "NVSHMEM", "nvidia-nvshmem-cu13"}}) {
    if (!absl::StartsWith(loader_message, library)) continue;
    return absl::StrCat(name,
                        " is missing; it comes with the Python package ",
                        package,
                        ": reinstall it with deploy/install.sh --cuda, or in "
                        "an environment of your own with pip, or rebuild the "
                        "image");
  }
  return "reinstall CUDA's libraries with deploy/install.sh --cuda, or in an "
         "environment of your own with pip, or rebuild the image";
}

}  // namespace dapd
