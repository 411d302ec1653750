// Zeroed memory from the system, given back on destruction. Constructors throw
// std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace dapd {

struct UnmapMemory {
  size_t bytes = 0;
  void operator()(void* memory) const;
};

// In huge pages where the system grants them: a stream over gigabytes would
// otherwise wait for page tables.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(int64_t bytes);
  void* data() const { return memory_.get(); }

 private:
  std::unique_ptr<void, UnmapMemory> memory_;
};

// Addresses for `bytes`, of which memory is taken page by page as they are
// first written, in pages of kPageBytes whatever the system prefers: what is
// not written costs nothing. Aligned to a page.
class SparseBuffer {
 public:
  static constexpr int64_t kPageBytes = 4096;

  explicit SparseBuffer(int64_t bytes);
  void* data() const { return memory_.get(); }

 private:
  std::unique_ptr<void, UnmapMemory> memory_;
};

}  // namespace dapd
