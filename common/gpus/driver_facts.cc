#include "common/gpus/driver_facts.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/visible_gpus.h"

namespace dapd {
namespace {

// These constants and structures belong to the driver's interface, which is
// NVIDIA's and does not change: "CUDA Driver API" and "NVML API Reference".
// Devices are ordinals in the CUDA Driver API, and handles in NVML.
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

struct Uuid {
  std::array<char, 16> bytes = {};
};

struct ManagedMemory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

// Loads a library that stays loaded: neither of the driver's two libraries can
// be unloaded safely.
class Library {
 public:
  explicit Library(const std::string& name)
      : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ != nullptr) return;
    const char* error = ::dlerror();
    error_ = error == nullptr ? "cannot be loaded" : error;
  }

  const std::string& error() const { return error_; }

  // Calls the function of this name and returns its result; `kMissing` without
  // the function.
  template <typename... Arguments>
  int Call(const char* name, Arguments... arguments) const {
    constexpr int kMissing = -1;
    if (handle_ == nullptr) return kMissing;
    auto* function =
        reinterpret_cast<int (*)(Arguments...)>(::dlsym(handle_, name));
    return function == nullptr ? kMissing : function(arguments...);
  }

 private:
  void* handle_ = nullptr;
  std::string error_;
};

// Returns "580.82.07" for "NVRM version: NVIDIA UNIX x86_64 Kernel Module
// 580.82.07 Wed Aug 27 ...".
std::string KernelModuleVersion(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  for (const absl::string_view word : absl::StrSplit(line, ' ')) {
    const bool is_version =
        std::ranges::count(word, '.') > 0 &&
        std::ranges::all_of(word, [](char c) {
          return c == '.' || absl::ascii_isdigit(static_cast<unsigned char>(c));
        });
    if (is_version) return std::string(word);
  }
  return "";
}

std::string ErrorName(const Library& cuda, int code) {
  const char* name = nullptr;
  if (code == 0 || cuda.Call("cuGetErrorName", code, &name) != 0 ||
      name == nullptr) {
    return "";
  }
  return name;
}

// Writes the id as CUDA_VISIBLE_DEVICES and the management library do.
std::string UuidText(absl::string_view prefix, const Uuid& uuid) {
  std::string text = absl::BytesToHexString(
      absl::string_view(uuid.bytes.data(), uuid.bytes.size()));
  for (const size_t at : {20, 16, 12, 8}) text.insert(at, 1, '-');
  return absl::StrCat(prefix, text);
}

std::optional<int64_t> FreeBytes(const Library& management,
                                 const std::string& uuid) {
  void* device = nullptr;
  ManagedMemory memory;
  if (management.Call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device) !=
          0 ||
      management.Call("nvmlDeviceGetMemoryInfo", device, &memory) != 0) {
    return std::nullopt;
  }
  return static_cast<int64_t>(memory.free);
}

Gpu ReadGpu(const Library& cuda, const Library& management, int device) {
  Gpu gpu;
  std::array<char, 256> name = {};
  cuda.Call("cuDeviceGetName",
            name.data(),
            static_cast<int>(name.size() - 1),
            device);
  gpu.name = name.data();
  cuda.Call("cuDeviceGetAttribute", &gpu.major, kCapabilityMajor, device);
  cuda.Call("cuDeviceGetAttribute", &gpu.minor, kCapabilityMinor, device);
  size_t total = 0;
  cuda.Call("cuDeviceTotalMem_v2", &total, device);
  gpu.total_bytes = static_cast<int64_t>(total);
  Uuid uuid;
  cuda.Call("cuDeviceGetUuid_v2", &uuid, device);
  // The id does not say whether it belongs to a GPU or to a part of one.
  for (const char* prefix : {"GPU-", "MIG-"}) {
    gpu.uuid = UuidText(prefix, uuid);
    gpu.free_bytes = FreeBytes(management, gpu.uuid);
    if (gpu.free_bytes.has_value()) return gpu;
  }
  gpu.uuid = UuidText("GPU-", uuid);
  return gpu;
}

std::vector<std::string> AllUuids(const Library& management) {
  unsigned count = 0;
  if (management.Call("nvmlDeviceGetCount_v2", &count) != 0) return {};
  std::vector<std::string> uuids;
  for (unsigned i = 0; i < count; ++i) {
    void* device = nullptr;
    std::array<char, 96> uuid = {};
    const bool is_known =
        management.Call("nvmlDeviceGetHandleByIndex_v2", i, &device) == 0 &&
        management.Call("nvmlDeviceGetUUID",
                        device,
                        uuid.data(),
                        static_cast<unsigned>(uuid.size() - 1)) == 0;
    // A lost GPU still counts.
    uuids.emplace_back(is_known ? uuid.data() : "");
  }
  return uuids;
}

}  // namespace

DriverFacts ReadDriverFacts(const DriverSources& sources) {
  DriverFacts facts;
  facts.kernel_module = KernelModuleVersion(sources.version_file);
  facts.device_nodes = GpuNodes(sources.devices);
  if (const char* visible = std::getenv(kVisibleGpusVariable);
      visible != nullptr) {
    facts.visible = visible;
  }
  const Library cuda(sources.cuda_library);
  facts.library_error = cuda.error();
  if (!facts.library_error.empty()) return facts;
  facts.init_code = cuda.Call("cuInit", 0U);
  facts.init_name = ErrorName(cuda, facts.init_code);
  cuda.Call("cuDriverGetVersion", &facts.cuda_version);
  const Library management(sources.management_library);
  const bool is_managed = management.Call("nvmlInit_v2") == 0;
  if (is_managed) facts.all_uuids = AllUuids(management);
  int count = 0;
  if (facts.init_code == 0) cuda.Call("cuDeviceGetCount", &count);
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (cuda.Call("cuDeviceGet", &device, i) != 0) break;
    facts.gpus.push_back(ReadGpu(cuda, management, device));
  }
  if (is_managed) management.Call("nvmlShutdown");
  return facts;
}

}  // namespace dapd
