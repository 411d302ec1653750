#include "services/cli/version_text.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/flavour.h"
#include "common/base/version.h"
#include "common/gpus/cuda_backend.h"
#include "common/kernels/cpu_features.h"

namespace dapd {

std::string VersionText() {
  const std::string commit = Commit();
  const std::string kernels = CudaKernels();
  std::string text = absl::StrCat(Version(), "\n");
  absl::StrAppend(&text,
                  "commit   ",
                  commit.empty() ? "unknown" : commit,
                  "\nflavour  ",
                  Flavour(),
                  "\nkernels  CPU: ",
                  CpuLevelName(CpuLevelInUse()));
  if (CudaLibraryPath().empty()) return text;
  absl::StrAppend(&text,
                  "; GPU: ",
                  kernels.empty() ? "LibTorch's, built without nvcc"
                                  : absl::StrCat("own, ", kernels));
  return text;
}

}  // namespace dapd
