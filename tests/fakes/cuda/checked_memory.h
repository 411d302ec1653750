// Memory of a device that remembers, for every byte, who touched it last, and
// so sees what a GPU lets pass: an access beside a buffer, a read of what
// nobody has written, and two threads of a launch that touch a byte, one of
// them writing, with nothing between them that puts them in order. Such a race
// shows in any order of the threads, not only in an unlucky one.
//
// Order comes from the block's barrier, and within a warp from __syncwarp.
// Blocks of a launch have none but those of a cluster, whose barrier orders
// them, and those that fence, count with atomicInc and, the later one, fence
// again. Atomic operations do not race with each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dapd::fake {

inline constexpr int kWarpSize = 32;

enum class Access { kRead, kWrite, kAtomic };

// What a block of the launch did from its start up to a barrier.
struct BlockPast {
  uint32_t block = 0;
  uint32_t end = 0;  // the epoch behind the barrier
};

// A thread between two barriers. Epochs count up over all launches: a block
// takes a new one at its start and behind every barrier.
struct Toucher {
  uint32_t launch_epoch = 0;  // the first of its launch
  // The first of its cluster, and the first behind the cluster's last barrier.
  uint32_t cluster_epoch = 0;
  uint32_t phase_epoch = 0;
  uint32_t epoch = 0;
  // The block, in its launch, of each of the launch's epochs.
  const std::vector<uint32_t>* blocks = nullptr;
  uint32_t block = 0;
  uint16_t thread = 0;      // in the block
  uint16_t warp_phase = 0;  // counts the warp's __syncwarp
  // Of other blocks: what came before.
  const std::vector<BlockPast>* before = nullptr;
};

inline constexpr uint32_t kFirstEpoch = 4;

class CheckedMemory {
 public:
  explicit CheckedMemory(size_t bytes);
  ~CheckedMemory();
  CheckedMemory(const CheckedMemory&) = delete;
  CheckedMemory& operator=(const CheckedMemory&) = delete;

  bool Contains(const void* address) const { return Offset(address) < size_; }

  // Uninitialised memory that is aligned to `alignment` and to no more, with
  // room on either side that nobody may touch. It is filled with ones: not a
  // number in every type. Ends the process where there is no room.
  void* Take(std::string name, size_t bytes, size_t alignment);
  void GiveBack(void* memory);
  void GiveAllBack();
  size_t bytes_taken() const { return bytes_taken_; }

  // The host has written, or takes away, a part of what was taken.
  void MarkWritten(const void* address, size_t bytes);
  void Forbid(const void* address, size_t bytes);
  bool IsWritten(const void* address, size_t bytes) const;
  // The host has written it, and no launch will.
  void MarkConstant(const void* address, size_t bytes);
  bool IsConstant(const void* address, size_t bytes) const;
  // As if nobody had written it yet: bytes that are under way.
  void Poison(void* address, size_t bytes);

  // What is wrong with this access, or nothing.
  std::string Touch(const void* address,
                    size_t bytes,
                    Access access,
                    const Toucher& who);

 private:
  // Who of a block touched a byte in an epoch: a thread, several of one warp,
  // several warps, or atomic operations.
  using Who = uint16_t;
  struct Cell {
    uint32_t written;  // epoch, or one of the states below
    uint32_t read;
    Who writer;
    Who reader;
    uint16_t write_phase;
    uint16_t read_phase;
  };
  struct Buffer {
    std::string name;
    size_t bytes;
  };
  enum class Fault {
    kNone,
    kOutside,
    kUnwritten,
    kConstant,
    kOtherBlock,
    kReadAfterWrite,
    kWriteAfterWrite,
    kWriteAfterRead
  };

  size_t Offset(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - data_);
  }
  static Fault TouchCell(Cell& cell, Access access, const Toucher& who);
  // Whether another block may have touched it in `epoch` with nothing between.
  static bool ByAnotherBlock(uint32_t epoch, const Toucher& who);
  static bool InOrder(Who other, uint16_t phase, const Toucher& who);
  static Who Together(Who other, Who thread);
  static std::string NameOf(Who who);
  std::string Place(size_t offset) const;
  void Mark(size_t offset, size_t bytes, uint32_t state);

  size_t size_;
  size_t next_ = 0;  // behind the last buffer
  size_t bytes_taken_ = 0;
  std::byte* data_;
  Cell* cells_;
  std::map<size_t, Buffer> buffers_;  // by offset
};

}  // namespace dapd::fake
