#include "tests/fakes/torch_device/device_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace dapd {
namespace {

int64_t limit = 0;

struct Block {
  void* data = nullptr;
  size_t bytes = 0;
};

void FreeBlock(void* context) {
  auto* block = static_cast<Block*>(context);
  Work().live_bytes -= static_cast<int64_t>(block->bytes);
  std::free(block->data);
  delete block;
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto size = static_cast<int64_t>(bytes);
    if (limit > 0 && Work().live_bytes + size > limit) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the device is out of memory");
    }
    ++Work().allocations;
    Work().largest_allocation = std::max(Work().largest_allocation, size);
    Work().live_bytes += size;
    Work().peak_bytes = std::max(Work().peak_bytes, Work().live_bytes);
    auto* block = new Block{std::malloc(std::max<size_t>(bytes, 1)), bytes};
    // Memory that was not written holds NaN.
    std::memset(block->data, 0xFF, bytes);
    return {block->data, block, &FreeBlock, TheDevice()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

std::map<const char*, size_t>& PinnedBlocks() {
  static auto& blocks = *new std::map<const char*, size_t>;
  return blocks;
}

void FreePinned(void* data) {
  PinnedBlocks().erase(static_cast<const char*>(data));
  std::free(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(std::max<size_t>(bytes, 1));
    PinnedBlocks()[static_cast<const char*>(data)] = std::max<size_t>(bytes, 1);
    return {data, data, &FreePinned, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreePinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

DeviceAllocator device_allocator;
PinnedAllocator pinned_allocator;

struct Registration {
  Registration() {
    c10::SetAllocator(c10::DeviceType::CUDA, &device_allocator, 1);
  }
} registration;

}  // namespace

DeviceWork& Work() {
  // Static tensors count in it until the process ends.
  static DeviceWork& work = *new DeviceWork;
  return work;
}

c10::Allocator& DeviceMemory() { return device_allocator; }
c10::Allocator& PinnedMemory() { return pinned_allocator; }

bool IsPinned(const void* data) {
  const auto* at = static_cast<const char*>(data);
  auto block = PinnedBlocks().upper_bound(at);
  if (block == PinnedBlocks().begin()) return false;
  --block;
  return at < block->first + block->second;
}

int64_t DeviceWork::num_launches() const {
  int64_t count = 0;
  for (const auto& [name, times] : launches) count += times;
  return count;
}

int64_t DeviceWork::Launches(const std::string& name) const {
  const auto found = launches.find(name);
  return found == launches.end() ? 0 : found->second;
}

const DeviceWork& WorkOfDevice() { return Work(); }

void ResetWorkOfDevice() {
  const int64_t live = Work().live_bytes;
  Work() = {.live_bytes = live, .peak_bytes = live};
}

void LimitDeviceMemory(int64_t bytes) { limit = bytes; }

}  // namespace dapd
