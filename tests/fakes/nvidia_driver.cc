// Simulates libcuda.so.1 and libnvidia-ml.so.1, as far as common/gpus uses
// them. The environment is read at each call and describes the GPUs:
//
//   FAKE_NVIDIA_GPUS  NAME|CAPABILITY|GiB|GiB FREE, with ; between GPUs
//   FAKE_NVIDIA_FREE  a file with the free GiB of each GPU, which replaces the
//                     values above
//   FAKE_NVIDIA_CUDA  the newest CUDA that the driver supports (13000)
//   FAKE_NVIDIA_INIT  the result of cuInit (0, or 100 without a GPU)
//
// CUDA_VISIBLE_DEVICES has the same effect as in CUDA. The id of GPU i is 16
// times the byte 0x10 + i.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct FakeGpu {
  size_t number = 0;
  std::string name;
  int capability = 0;  // 90 for 9.0
  double total_gib = 0;
  double free_gib = 0;
};

std::string Setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

std::vector<FakeGpu> AllGpus() {
  std::vector<FakeGpu> gpus;
  for (const std::string& text : Split(Setting("FAKE_NVIDIA_GPUS", ""), ';')) {
    const std::vector<std::string> parts = Split(text, '|');
    gpus.push_back(
        {.number = gpus.size(),
         .name = parts.at(0),
         .capability = static_cast<int>(10 * std::stod(parts.at(1)) + 0.5),
         .total_gib = std::stod(parts.at(2)),
         .free_gib = std::stod(parts.at(3))});
    if (std::ifstream file(Setting("FAKE_NVIDIA_FREE", "")); file) {
      file >> gpus.back().free_gib;
    }
  }
  return gpus;
}

std::string UuidOf(const FakeGpu& gpu) {
  char byte[3];
  std::snprintf(
      byte, sizeof(byte), "%02x", static_cast<unsigned>(0x10 + gpu.number));
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

std::vector<FakeGpu> VisibleFakes() {
  const char* setting = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::vector<FakeGpu> all = AllGpus();
  if (setting == nullptr) return all;
  std::vector<FakeGpu> visible;
  std::set<size_t> seen;
  for (const std::string& entry : Split(setting, ',')) {
    const bool by_id = entry.rfind("GPU-", 0) == 0;
    const FakeGpu* found = nullptr;
    for (const FakeGpu& gpu : all) {
      if (by_id ? UuidOf(gpu).rfind(entry, 0) == 0
                : std::to_string(gpu.number) == entry) {
        found = &gpu;
      }
    }
    if (found == nullptr) return visible;
    if (!seen.insert(found->number).second) return {};
    visible.push_back(*found);
  }
  return visible;
}

size_t Bytes(double gib) { return static_cast<size_t>(gib * (1 << 30)); }

constexpr int kNoDevice = 100;

}  // namespace

extern "C" {

// The following functions belong to libcuda.so.1.
int cuInit(unsigned /*flags*/) {
  const std::string code = Setting("FAKE_NVIDIA_INIT", "");
  if (!code.empty()) return std::stoi(code);
  return VisibleFakes().empty() ? kNoDevice : 0;
}

int cuGetErrorName(int code, const char** name) {
  *name = code == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
  return 0;
}

int cuDriverGetVersion(int* version) {
  *version = std::stoi(Setting("FAKE_NVIDIA_CUDA", "13000"));
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(VisibleFakes().size());
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name,
                static_cast<size_t>(size),
                "%s",
                VisibleFakes().at(static_cast<size_t>(device)).name.c_str());
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int capability =
      VisibleFakes().at(static_cast<size_t>(device)).capability;
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return 0;
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = Bytes(VisibleFakes().at(static_cast<size_t>(device)).total_gib);
  return 0;
}

int cuDeviceGetUuid_v2(char* uuid, int device) {
  const FakeGpu gpu = VisibleFakes().at(static_cast<size_t>(device));
  std::memset(uuid, static_cast<int>(0x10 + gpu.number), 16);
  return 0;
}

// The following functions belong to libnvidia-ml.so.1; a handle is a GPU's
// number plus 1.
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(AllGpus().size());
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index) + 1);
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (const FakeGpu& gpu : AllGpus()) {
    if (UuidOf(gpu) != uuid) continue;
    *device = reinterpret_cast<void*>(gpu.number + 1);
    return 0;
  }
  return 1;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  const FakeGpu gpu = AllGpus().at(reinterpret_cast<uintptr_t>(device) - 1);
  std::snprintf(uuid, size, "%s", UuidOf(gpu).c_str());
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  const FakeGpu gpu = AllGpus().at(reinterpret_cast<uintptr_t>(device) - 1);
  memory[0] = Bytes(gpu.total_gib);
  memory[1] = Bytes(gpu.free_gib);
  memory[2] = memory[0] - memory[1];
  return 0;
}

}  // extern "C"
