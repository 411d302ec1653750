// The device that the host simulates for kernels compiled by host_source.cmake:
// its memory, and the errors of its launches. A process has one device, because
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

// Returns the device's memory.
CheckedMemory& GlobalMemory();

// Lets the next launches run their blocks, and the threads of a block between
// two meetings, in another order.
void SetSchedule(uint32_t seed);

// The properties of the device in the next launches.
struct DeviceTraits {
  int major = 9;  // of its compute capability
  int multiprocessors = 4;
  size_t shared_bytes = size_t{227} << 10;  // per block, if it asks for more
                                            // than the default
  unsigned largest_cluster = 4;
  int most_clusters = 1000;  // at a time, if there are enough multiprocessors
};
void SetTraits(const DeviceTraits& traits);

// Returns the first error since the last call (kernel, block, thread and what
// it did), or an empty string. The launch ended there and returned an error.
std::string TakeReport();

// Returns whether an error is left for the next call of cudaGetLastError.
// LibTorch calls that after each of its launches.
bool IsErrorLeft();

// The bytes of the device's memory that kernels have read and written since the
// last call, without shared variables; and their atomic additions in any
// memory.
struct Traffic {
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t atomic_additions = 0;
};
Traffic TakeTraffic();

// The kernels launched since the last call.
struct Launches {
  int64_t in_turn = 0;
  int64_t early = 0;  // programmatic dependent launches
  // The shares of the shared memory, in percent, that the kernels of early
  // launches ask for; -1 if they ask for none.
  std::set<int> carveouts;
  int64_t blocks = 0;  // in all launches
};
Launches TakeLaunches();

// The code that watches a kernel's thread calls this; it does not return.
[[noreturn]] void EndKernel(const std::string& reason);
// Checks an access by the code of a kernel. Accesses by the host are ignored.
void WatchAccess(const void* address, size_t bytes, Access access);
bool IsInKernel();

// A number of elements. The type keeps it apart from a list of elements.
enum class Elements : int64_t {};

// Memory of the device, aligned to 16 bytes and no more. A kernel's code can
// reach no other memory except its own stack and shared variables.
template <typename T>
class DeviceBuffer {
 public:
  // Makes unwritten memory, which no kernel may read before it is written.
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
  // Returns whether all bytes of an element have been written.
  bool IsWritten(int64_t index) const {
    return GlobalMemory().IsWritten(data_ + index, sizeof(T));
  }
  // From here on no kernel may write it, so a kernel may read it before it has
  // waited for the launch before.
  void MarkConstant() { MarkConstant(0, static_cast<int64_t>(size_)); }
  void MarkConstant(int64_t begin, int64_t count) {
    GlobalMemory().MarkConstant(data_ + begin,
                                static_cast<size_t>(count) * sizeof(T));
  }
  // From here on no kernel may touch elements [begin, begin + count), for
  // example the gaps between rows.
  void Forbid(int64_t begin, int64_t count) {
    GlobalMemory().Forbid(data_ + begin,
                          static_cast<size_t>(count) * sizeof(T));
  }

 private:
  size_t size_;
  T* data_;
};

}  // namespace dapd::fake
