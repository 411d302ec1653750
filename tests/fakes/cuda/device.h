// The device that the host simulates for kernels compiled by host_source.cmake:
// its memory, and what went wrong in its launches. There is one a process, as
// kernels find it through globals. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/cuda/checked_memory.h"

namespace dapd::fake {

// Of device memory.
CheckedMemory& GlobalMemory();

// The next launches run their blocks, and the threads of a block between two
// meetings, in another order.
void SetSchedule(uint32_t seed);

// What the next launches find the device to be.
struct DeviceTraits {
  int major = 9;  // of its compute capability
  int multiprocessors = 4;
  size_t shared_bytes = size_t{227} << 10;  // of a block that asks for more
  unsigned largest_cluster = 4;
  int most_clusters = 1000;  // at a time, where multiprocessors are as many
};
void SetTraits(const DeviceTraits& traits);

// The first thing that went wrong since the last call: kernel, block, thread
// and what it did; empty: nothing. The launch in which it happened ended there
// and gave an error.
std::string TakeReport();

// Whether an error waits for whoever asks for the last one, as LibTorch does
// behind each of its launches.
bool IsErrorLeft();

// What kernels have read and written of the device's memory, shared variables
// aside, since the last call; and how often they have added atomically, to
// whichever memory.
struct Traffic {
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t atomic_additions = 0;
};
Traffic TakeTraffic();

// Kernels launched since the last call.
struct Launches {
  int64_t in_turn = 0;
  int64_t early = 0;  // programmatic dependent launches
  // What early ones' kernels ask for of the shared memory, in percent; -1:
  // nothing.
  std::set<int> carveouts;
  int64_t blocks = 0;  // of all of them
};
Launches TakeLaunches();

// Called by what watches a kernel's thread; it never goes on.
[[noreturn]] void EndKernel(const std::string& reason);
// An access by the code of a kernel; on the host it is nobody's business.
void WatchAccess(const void* address, size_t bytes, Access access);
bool IsInKernel();

// A number of elements, which a list of them cannot be taken for.
enum class Elements : int64_t {};

// Memory of the device, aligned to 16 bytes and to no more. A kernel's code
// reaches no other memory, its own stack and shared variables aside.
template <typename T>
class DeviceBuffer {
 public:
  // Nobody has written it: reading it is an error.
  DeviceBuffer(std::string name, Elements size)
      : size_(static_cast<size_t>(size)),
        data_(static_cast<T*>(
            GlobalMemory().Take(std::move(name),
                                size_ * sizeof(T),
                                std::max(alignof(T), size_t{16})))) {}
  DeviceBuffer(std::string name, const std::vector<T>& values)
      : DeviceBuffer(std::move(name), Elements(values.size())) {
    Write(values);
  }
  ~DeviceBuffer() { GlobalMemory().GiveBack(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return data_; }
  size_t size() const { return size_; }

  void Write(const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), data_);
    GlobalMemory().MarkWritten(data_, values.size() * sizeof(T));
  }
  std::vector<T> Read() const { return std::vector<T>(data_, data_ + size_); }
  // Whether anybody has written all bytes of an element.
  bool IsWritten(int64_t index) const {
    return GlobalMemory().IsWritten(data_ + index, sizeof(T));
  }
  // No kernel may write it from here on, so that one may read it before it has
  // waited for the launch before it.
  void MarkConstant() { MarkConstant(0, static_cast<int64_t>(size_)); }
  void MarkConstant(int64_t begin, int64_t count) {
    GlobalMemory().MarkConstant(data_ + begin,
                                static_cast<size_t>(count) * sizeof(T));
  }
  // No kernel may touch elements [begin, begin + count) from here on: the gaps
  // between rows.
  void Forbid(int64_t begin, int64_t count) {
    GlobalMemory().Forbid(data_ + begin,
                          static_cast<size_t>(count) * sizeof(T));
  }

 private:
  size_t size_;
  T* data_;
};

}  // namespace dapd::fake
