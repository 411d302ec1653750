// Memory of a device that remembers for every byte who touched it last. So it
// finds errors that a GPU does not report: an access beside a buffer, a read of
// a byte that nobody has written, and a race of two threads of a launch that
// touch a byte, one of them writing, without anything that orders them. It
// finds such a race in any order of the threads, not only in an unlucky one.
//
// The block's barrier orders its threads, and __syncwarp the lanes of a warp.
// Blocks of a launch are not ordered, except the blocks of a cluster by its
// barrier, and blocks that fence, count with atomicInc and (the later block)
// fence again. Atomic operations do not race with each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dapd::fake {

inline constexpr int kWarpSize = 32;

enum class Access { kRead, kWrite, kAtomic };

// The part of a block's run from its start up to a barrier.
struct BlockPast {
  uint32_t block = 0;
  uint32_t end = 0;  // the epoch after the barrier
};

// A thread between two barriers. Epochs count up over all launches: a block
// takes a new epoch at its start and after every barrier.
struct Toucher {
  uint32_t launch_epoch = 0;  // the first of its launch
  // The first epoch of its cluster, and the first after the cluster's last
  // barrier.
  uint32_t cluster_epoch = 0;
  uint32_t phase_epoch = 0;
  uint32_t epoch = 0;
  // The block of each of the launch's epochs.
  const std::vector<uint32_t>* blocks = nullptr;
  uint32_t block = 0;
  uint16_t thread = 0;      // in the block
  uint16_t warp_phase = 0;  // counts the warp's __syncwarp
  // Parts of other blocks' runs that are ordered before this.
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

  // Returns uninitialised memory that is aligned to `alignment` and no more,
  // with room on either side that nobody may touch. It is filled with ones,
  // which is not a number in every type. Ends the process if there is no room.
  void* Take(std::string name, size_t bytes, size_t alignment);
  void GiveBack(void* memory);
  void GiveAllBack();
  size_t bytes_taken() const { return bytes_taken_; }

  // The host has written, or takes away, a part of the memory from Take.
  void MarkWritten(const void* address, size_t bytes);
  void Forbid(const void* address, size_t bytes);
  bool IsWritten(const void* address, size_t bytes) const;
  // The host has written it, and no launch may write it.
  void MarkConstant(const void* address, size_t bytes);
  bool IsConstant(const void* address, size_t bytes) const;
  // The bytes count as unwritten, because a copy or a message to them is under
  // way.
  void Poison(void* address, size_t bytes);

  // Returns what is wrong with this access, or nothing.
  std::string Touch(const void* address,
                    size_t bytes,
                    Access access,
                    const Toucher& who);

 private:
  // Says who of a block touched a byte in an epoch: a thread, several of one
  // warp, several warps, or atomic operations.
  using Who = uint16_t;
  struct Cell {
    uint32_t written;  // epoch, or a state of checked_memory.cc
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
  // Returns whether another block may have touched it in `epoch` without being
  // ordered before `who`.
  static bool ByAnotherBlock(uint32_t epoch, const Toucher& who);
  static bool InOrder(Who other, uint16_t phase, const Toucher& who);
  static Who Together(Who other, Who thread);
  static std::string NameOf(Who who);
  std::string Place(size_t offset) const;
  void Mark(size_t offset, size_t bytes, uint32_t state);

  size_t size_;
  size_t next_ = 0;  // after the last buffer
  size_t bytes_taken_ = 0;
  std::byte* data_;
  Cell* cells_;
  std::map<size_t, Buffer> buffers_;  // by offset
};

}  // namespace dapd::fake
