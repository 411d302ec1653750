// Zeroed memory from the system, freed on destruction. Constructors throw
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

// Uses huge pages where the system grants them: a stream over gigabytes would
// otherwise wait for page tables.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(int64_t bytes);
  void* data() const { return memory_.get(); }

 private:
  std::unique_ptr<void, UnmapMemory> memory_;
};

// Reserves addresses for `bytes`. Memory is taken page by page when it is first
// written, in pages of kPageBytes whatever the system prefers, so unwritten
// parts cost nothing. Aligned to a page.
class SparseBuffer {
 public:
  static constexpr int64_t kPageBytes = 4096;

  explicit SparseBuffer(int64_t bytes);
  void* data() const { return memory_.get(); }

 private:
  std::unique_ptr<void, UnmapMemory> memory_;
};

}  // namespace dapd
