// Messages between the blocks of a cluster: bytes that arrive some time later,
// in any order, and count at their receiver's barrier.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/fakes/cuda/grid_run.h"

namespace dapd::fake {
namespace {

void AddPast(const BlockPast& past, std::vector<BlockPast>* to) {
  for (BlockPast& known : *to) {
    if (known.block != past.block) continue;
    known.end = std::max(known.end, past.end);
    return;
  }
  to->push_back(past);
}

}  // namespace

void GridRun::InitCount(void* count) {
  Touch(count, sizeof(uint64_t), Access::kWrite);
  if (!counts_.try_emplace(count, Count{.block = current_->block}).second) {
    Fail("initialises a count of bytes twice");
  }
  // From here on no kernel may touch it as a variable.
  shared_.Poison(count, sizeof(uint64_t));
}

GridRun::Count& GridRun::CountAt(const void* count) {
  const auto found = counts_.find(count);
  if (found == counts_.end()) {
    Fail("uses a count of bytes that nobody has initialised");
  }
  return found->second;
}

void GridRun::ExpectBytes(void* count, int bytes) {
  Count& at = CountAt(count);
  if (at.is_expected) Fail("expects the bytes of a phase twice");
  at.is_expected = true;
  at.missing += bytes;
  EndPhaseIfOver(count, at);
}

void GridRun::SendBytes(
    int rank, void* to, const void* from, size_t bytes, void* count) {
  void* const there = MapShared(to, static_cast<unsigned>(rank));
  void* const count_there = MapShared(count, static_cast<unsigned>(rank));
  CountAt(count_there);
  const auto is_there = [there](const auto& message) {
    return message.to == there;
  };
  const auto holds_one = [&](const auto& of_count) {
    const Count& at = of_count.second;
    return std::any_of(at.under_way.begin(), at.under_way.end(), is_there) ||
           std::any_of(at.there.begin(), at.there.end(), is_there);
  };
  if (std::any_of(messages_.begin(), messages_.end(), is_there) ||
      std::any_of(counts_.begin(), counts_.end(), holds_one)) {
    Fail("sends a message to where another block has not waited for one");
  }
  CheckTouch(there, bytes, Access::kWrite);
  shared_.Poison(there, bytes);
  const Block& own = *current_->block;
  Message message{.to = there,
                  .count = count_there,
                  .bytes{static_cast<const std::byte*>(from),
                         static_cast<const std::byte*>(from) + bytes},
                  .before = own.before};
  AddPast({own.number, own.epoch}, &message.before);
  messages_.push_back(std::move(message));
}

void GridRun::DeliverMessage() {
  std::swap(messages_[random_() % messages_.size()], messages_.back());
  const Message message = std::move(messages_.back());
  messages_.pop_back();
  Count& count = counts_.at(message.count);
  const auto receiver =
      ThreadsOf(static_cast<size_t>(count.block - &blocks_[0]));
  if (std::all_of(
          receiver,
          receiver + static_cast<std::ptrdiff_t>(block_threads_),
          [](const Thread& thread) { return thread.state == State::kEnded; })) {
    failure_ = Named("a message comes to a block that has ended", &*receiver);
    return;
  }
  std::memcpy(message.to, message.bytes.data(), message.bytes.size());
  count.missing -= static_cast<int64_t>(message.bytes.size());
  count.under_way.push_back({message.to, message.bytes.size()});
  for (const BlockPast& past : message.before) AddPast(past, &count.before);
  EndPhaseIfOver(message.count, count);
}

void GridRun::EndPhaseIfOver(const void* place, Count& count) {
  if (!count.is_expected || count.missing != 0) return;
  count.is_expected = false;
  ++count.phase;
  count.there.insert(
      count.there.end(), count.under_way.begin(), count.under_way.end());
  count.under_way.clear();
  for (Thread& thread : threads_) {
    if (thread.state != State::kAtBytes || thread.count != place) continue;
    thread.state = State::kReady;
    ready_.push_back(static_cast<int>(thread.place));
  }
}

void GridRun::WaitForBytes(void* count, int parity) {
  if (CountAt(count).block != current_->block) {
    Fail("waits for the bytes of another block");
  }
  while ((CountAt(count).phase & 1) == parity) {
    current_->count = count;
    Wait(State::kAtBytes);
  }
  Count& at = CountAt(count);
  for (const auto& [to, bytes] : at.there) {
    shared_.MarkWritten(to, bytes);
  }
  at.there.clear();
  // The earlier actions of the senders are ordered before everything after the
  // next barrier.
  for (const BlockPast& past : at.before) {
    AddPast(past, &current_->block->learned);
  }
}

void GridRun::TakeLearned(Block& block) {
  for (const BlockPast& past : block.learned) AddPast(past, &block.before);
  block.learned.clear();
}

}  // namespace dapd::fake
