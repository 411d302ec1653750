// The memory operations of a launch's threads: shared variables, copies under
// way, and the check of every access.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/fakes/cuda/grid_run.h"

namespace dapd::fake {
namespace {

// The shared memory of a block that asks for no more.
constexpr size_t kSharedBytes = size_t{48} << 10;

}  // namespace

void GridRun::Fence() {
  Block& block = *current_->block;
  block.fenced = block.epoch;
  block.before = block.behind;
}

void GridRun::CountBlock(const void* place) {
  Block& block = *current_->block;
  std::vector<BlockPast>& published = published_[place];
  block.behind = published;
  // A fence covers what came before it, at the latest by the next barrier.
  if (block.fenced != 0) {
    published.push_back(
        {block.number, std::min(block.epoch, block.fenced + 1)});
  }
}

GridRun::SharedVariable& GridRun::VariableOf(Block& block,
                                             const void* declaration,
                                             const SharedVariable& made_as) {
  const auto [found, is_new] =
      block.variables.try_emplace(declaration, made_as);
  if (is_new) {
    found->second.memory =
        shared_.Take(made_as.name, made_as.bytes, made_as.alignment);
  }
  return found->second;
}

void* GridRun::SharedMemory(const char* name,
                            const void* declaration,
                            size_t bytes,
                            size_t alignment) {
  Block& block = *current_->block;
  if (!block.variables.contains(declaration)) {
    block.shared_bytes += bytes;
    if (block.shared_bytes > kSharedBytes) {
      Fail(absl::StrCat("'", name, "' is more shared memory than a block has"));
    }
  }
  return VariableOf(block, declaration, {name, nullptr, bytes, alignment})
      .memory;
}

void* GridRun::DynamicSharedMemory(size_t alignment) {
  return VariableOf(*current_->block,
                    nullptr,
                    {"dynamic shared memory",
                     nullptr,
                     call_.shape.dynamic_shared_bytes,
                     alignment})
      .memory;
}

void* GridRun::MapShared(const void* address, unsigned rank) {
  if (rank >= blocks_.size()) {
    Fail(absl::StrCat(
        "asks for block ", rank, " of a cluster of ", blocks_.size()));
  }
  const auto* byte = static_cast<const std::byte*>(address);
  for (const auto& [declaration, variable] : current_->block->variables) {
    const auto* begin = static_cast<const std::byte*>(variable.memory);
    if (byte < begin || byte >= begin + variable.bytes) continue;
    const SharedVariable& other =
        VariableOf(blocks_[rank], declaration, variable);
    return static_cast<std::byte*>(other.memory) + (byte - begin);
  }
  Fail("maps an address that is not in its block's shared memory");
}

void GridRun::CopyLater(void* to, const void* from, size_t bytes, Site site) {
  const auto is_aligned = [bytes](const void* address) {
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;
  };
  if ((bytes != 4 && bytes != 8 && bytes != 16) || !is_aligned(to) ||
      !is_aligned(from)) {
    Fail(absl::StrCat("copies ",
                      bytes,
                      " bytes, of 4, 8 and 16, from or to an "
                      "address that is not aligned to them, at ",
                      ToString(site)));
  }
  if (!shared_.Contains(to)) {
    Fail(absl::StrCat("copies to what is not shared memory at ",
                      ToString(site)));
  }
  CheckTouch(to, bytes, Access::kWrite);
  CheckTouch(from, bytes, Access::kRead);
  shared_.Poison(to, bytes);
  current_->copies.push_back({to, from, bytes, current_->batch});
}

void GridRun::CommitCopies() { ++current_->batch; }

void GridRun::WaitForCopies(size_t but_for) {
  std::vector<Copy>& copies = current_->copies;
  auto copy = copies.begin();
  for (; copy != copies.end() && copy->batch + but_for < current_->batch;
       ++copy) {
    Touch(copy->from, copy->bytes, Access::kRead);
    std::memcpy(copy->to, copy->from, copy->bytes);
    Touch(copy->to, copy->bytes, Access::kWrite);
  }
  copies.erase(copies.begin(), copy);
}

void GridRun::Touch(const void* address, size_t bytes, Access access) {
  if (current_->fiber->OnStack(address)) return;
  if (global_.Contains(address)) {
    if (access != Access::kWrite) traffic_.bytes_read += bytes;
    if (access != Access::kRead) traffic_.bytes_written += bytes;
  }
  CheckTouch(address, bytes, access);
}

void GridRun::CheckTouch(const void* address, size_t bytes, Access access) {
  CheckedMemory& memory = shared_.Contains(address) ? shared_ : global_;
  const char* verb = access == Access::kRead    ? "reads "
                     : access == Access::kWrite ? "writes "
                                                : "adds to ";
  if (!memory.Contains(address)) {
    Fail(absl::StrCat(verb,
                      bytes,
                      " bytes at ",
                      absl::Hex(reinterpret_cast<uintptr_t>(address)),
                      ", which is not the device's memory"));
  }
  if (call_.shape.early && !current_->has_waited && &memory == &global_ &&
      !(access == Access::kRead && memory.IsConstant(address, bytes))) {
    Fail(
        absl::StrCat(verb, "memory before it waited for the launch before it"));
  }
  if (current_->has_arrived) {
    Fail(absl::StrCat(verb,
                      "memory between arriving at the cluster's barrier and "
                      "waiting there, which is not simulated"));
  }
  const Block& block = *current_->block;
  toucher_.block = block.number;
  toucher_.before = &block.before;
  toucher_.epoch = block.epoch;
  toucher_.thread = static_cast<uint16_t>(current_->number);
  toucher_.warp_phase =
      block.warp_phases[static_cast<size_t>(current_->number / kWarpSize)];
  const std::string fault = memory.Touch(address, bytes, access, toucher_);
  if (!fault.empty()) Fail(absl::StrCat(verb, fault));
}

}  // namespace dapd::fake
