#include "tests/fakes/cuda/checked_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace dapd::fake {
namespace {

// The states of a byte that no thread of a device has written.
constexpr uint32_t kForbidden = 0;  // fresh pages have this
constexpr uint32_t kUnwritten = 1;
constexpr uint32_t kByHost = 2;
constexpr uint32_t kConstant = 3;  // the host wrote it, and no launch may
static_assert(kFirstEpoch > kConstant);

// Values of Who above the threads' numbers.
constexpr uint16_t kLanesOfAWarp = 0x4000;  // plus the warp's number
constexpr uint16_t kSeveralWarps = 0x8000;
constexpr uint16_t kAtomically = 0x8001;
constexpr uint16_t kSeveralBlocks = 0x8002;

// Room beside a buffer: an index that is wrong by a row should still fall
// between two buffers.
constexpr size_t kLeastGuard = 4096;
constexpr size_t kMostGuard = size_t{1} << 18;

void* Map(size_t bytes) {
  void* memory = mmap(nullptr,
                      bytes,
                      PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1,
                      0);
  if (memory == MAP_FAILED) {
    std::perror("the simulated device has no memory");
    std::abort();
  }
  return memory;
}

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace

CheckedMemory::CheckedMemory(size_t bytes)
    : size_(bytes),
      data_(static_cast<std::byte*>(Map(bytes))),
      cells_(static_cast<Cell*>(Map(bytes * sizeof(Cell)))) {}

CheckedMemory::~CheckedMemory() {
  munmap(data_, size_);
  munmap(cells_, size_ * sizeof(Cell));
}

void* CheckedMemory::Take(std::string name, size_t bytes, size_t alignment) {
  const size_t guard = std::clamp(bytes, kLeastGuard, kMostGuard);
  const size_t offset = RoundUp(next_ + guard, 2 * alignment) + alignment;
  if (offset + bytes + guard > size_) {
    std::fprintf(stderr,
                 "%s: the simulated device has no room for %zu bytes\n",
                 name.c_str(),
                 bytes);
    std::abort();
  }
  next_ = offset + bytes;
  bytes_taken_ += bytes;
  buffers_[offset] = {std::move(name), bytes};
  std::memset(data_ + offset, 0xFF, bytes);
  Mark(offset, bytes, kUnwritten);
  return data_ + offset;
}

void CheckedMemory::GiveBack(void* memory) {
  const auto found = buffers_.find(Offset(memory));
  Mark(found->first, found->second.bytes, kForbidden);
  bytes_taken_ -= found->second.bytes;
  buffers_.erase(found);
  if (buffers_.empty()) next_ = 0;
}

void CheckedMemory::GiveAllBack() {
  while (!buffers_.empty()) GiveBack(data_ + buffers_.begin()->first);
}

void CheckedMemory::MarkWritten(const void* address, size_t bytes) {
  Mark(Offset(address), bytes, kByHost);
}

void CheckedMemory::MarkConstant(const void* address, size_t bytes) {
  Mark(Offset(address), bytes, kConstant);
}

void CheckedMemory::Forbid(const void* address, size_t bytes) {
  Mark(Offset(address), bytes, kForbidden);
}

void CheckedMemory::Mark(size_t offset, size_t bytes, uint32_t state) {
  for (size_t i = offset; i < offset + bytes; ++i)
    cells_[i] = {state, 0, 0, 0, 0, 0};
}

bool CheckedMemory::IsWritten(const void* address, size_t bytes) const {
  const Cell* cells = cells_ + Offset(address);
  return std::all_of(cells, cells + bytes, [](const Cell& cell) {
    return cell.written > kUnwritten;
  });
}

bool CheckedMemory::IsConstant(const void* address, size_t bytes) const {
  const Cell* cells = cells_ + Offset(address);
  return std::all_of(cells, cells + bytes, [](const Cell& cell) {
    return cell.written == kConstant;
  });
}

void CheckedMemory::Poison(void* address, size_t bytes) {
  std::memset(address, 0xFF, bytes);
  Mark(Offset(address), bytes, kUnwritten);
}

bool CheckedMemory::ByAnotherBlock(uint32_t epoch, const Toucher& who) {
  if (epoch < who.launch_epoch) return false;
  const uint32_t block = (*who.blocks)[epoch - who.launch_epoch];
  // The cluster's barrier orders the accesses of its own blocks.
  if (epoch >= who.cluster_epoch &&
      (epoch < who.phase_epoch || block == who.block)) {
    return false;
  }
  return std::none_of(
      who.before->begin(), who.before->end(), [&](const BlockPast& past) {
        return past.block == block && epoch < past.end;
      });
}

// Returns whether what `other` did in this epoch came before what `who` does
// now.
bool CheckedMemory::InOrder(Who other, uint16_t phase, const Toucher& who) {
  if (other == who.thread) return true;
  const int warp = who.thread / kWarpSize;
  const bool same_warp = other < kLanesOfAWarp ? other / kWarpSize == warp
                                               : other == kLanesOfAWarp + warp;
  return same_warp && phase < who.warp_phase;
}

CheckedMemory::Who CheckedMemory::Together(Who other, Who thread) {
  if (other == thread) return thread;
  const int warp = thread / kWarpSize;
  const bool same_warp = other < kLanesOfAWarp ? other / kWarpSize == warp
                                               : other == kLanesOfAWarp + warp;
  return same_warp ? static_cast<Who>(kLanesOfAWarp + warp) : kSeveralWarps;
}

CheckedMemory::Fault CheckedMemory::TouchCell(Cell& cell,
                                              Access access,
                                              const Toucher& who) {
  if (cell.written == kForbidden) return Fault::kOutside;
  if (access != Access::kWrite && cell.written == kUnwritten) {
    return Fault::kUnwritten;
  }
  if (access != Access::kRead && cell.written == kConstant) {
    return Fault::kConstant;
  }
  const bool atomic = access == Access::kAtomic;
  const bool both_atomic = atomic && cell.writer == kAtomically;
  if (ByAnotherBlock(cell.written, who) && !both_atomic) {
    return Fault::kOtherBlock;
  }
  if (cell.written == who.epoch && !both_atomic &&
      !InOrder(cell.writer, cell.write_phase, who)) {
    return access == Access::kRead ? Fault::kReadAfterWrite
                                   : Fault::kWriteAfterWrite;
  }
  if (access == Access::kRead) {
    const bool several_blocks =
        ByAnotherBlock(cell.read, who) ||
        (cell.reader == kSeveralBlocks && cell.read >= who.phase_epoch);
    cell.reader = several_blocks           ? kSeveralBlocks
                  : cell.read == who.epoch ? Together(cell.reader, who.thread)
                                           : who.thread;
    cell.read = who.epoch;
    cell.read_phase = who.warp_phase;
    return Fault::kNone;
  }
  if (ByAnotherBlock(cell.read, who) ||
      (cell.reader == kSeveralBlocks && cell.read >= who.phase_epoch)) {
    return Fault::kOtherBlock;
  }
  if (cell.read == who.epoch && !InOrder(cell.reader, cell.read_phase, who)) {
    return Fault::kWriteAfterRead;
  }
  cell.written = who.epoch;
  cell.writer = atomic ? kAtomically : who.thread;
  cell.write_phase = who.warp_phase;
  return Fault::kNone;
}

std::string CheckedMemory::NameOf(Who who) {
  if (who == kAtomically) return "an atomic operation";
  if (who == kSeveralWarps) return "several warps";
  if (who == kSeveralBlocks) return "several blocks";
  if (who >= kLanesOfAWarp) return absl::StrCat("warp ", who - kLanesOfAWarp);
  return absl::StrCat("thread ", who);
}

std::string CheckedMemory::Touch(const void* address,
                                 size_t bytes,
                                 Access access,
                                 const Toucher& who) {
  const size_t begin = Offset(address);
  // Structures have gaps that nobody writes: in a copy of a whole structure, a
  // word counts as written if one of its bytes is.
  size_t unwritten = 0;
  for (size_t offset = begin; offset < std::min(begin + bytes, size_);
       ++offset) {
    if ((offset - begin) % sizeof(uint32_t) == 0) unwritten = 0;
    Cell& cell = cells_[offset];
    const Cell before = cell;
    const Fault fault = TouchCell(cell, access, who);
    if (fault == Fault::kNone) continue;
    if (fault == Fault::kUnwritten && bytes > sizeof(uint64_t) &&
        ++unwritten < sizeof(uint32_t)) {
      continue;
    }
    const std::string place = absl::StrCat(bytes, " bytes at ", Place(offset));
    switch (fault) {
      case Fault::kOutside:
        return absl::StrCat(place, ", which is outside of every buffer");
      case Fault::kUnwritten:
        return absl::StrCat(place, ", which nobody has written");
      case Fault::kConstant:
        return absl::StrCat(place, ", which is constant");
      case Fault::kOtherBlock:
        return absl::StrCat(place, ", as another block of this launch does");
      case Fault::kReadAfterWrite:
      case Fault::kWriteAfterWrite:
        return absl::StrCat(place,
                            ", which ",
                            NameOf(before.writer),
                            " wrote, without a barrier between");
      case Fault::kWriteAfterRead:
        return absl::StrCat(place,
                            ", which ",
                            NameOf(before.reader),
                            " read, without a barrier between");
      case Fault::kNone:
        break;
    }
  }
  return "";
}

std::string CheckedMemory::Place(size_t offset) const {
  auto next = buffers_.upper_bound(offset);
  if (next == buffers_.begin()) return "no buffer";
  const auto& [begin, buffer] = *std::prev(next);
  return absl::StrCat(
      "byte ", offset - begin, " of '", buffer.name, "' [", buffer.bytes, "]");
}

}  // namespace dapd::fake
