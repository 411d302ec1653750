#include "common/rpc/transfer/upload_turns.h"

#include <algorithm>

#include "common/base/steady_time.h"

namespace dapd {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(100);

}  // namespace

UploadTurns::Turn::~Turn() {
  if (turns_ != nullptr) turns_->End(*this);
}

void UploadTurns::Turn::Advance() const {
  turns_->Extend(*this, SteadyNow() + turns_->stall_);
}

void UploadTurns::Turn::Complete() const {
  turns_->Extend(*this, absl::InfiniteFuture());
}

absl::StatusOr<UploadTurns::Turn> UploadTurns::Take(
    WeightSet set,
    const std::string& key,
    const std::function<bool()>& cancelled) {
  Turn::Name name(set, key);
  MutexLock lock(&mutex_);
  while (true) {
    const auto found = present_.find(name);
    const absl::Time now = SteadyNow();
    if (found == present_.end() || found->second.loses_it_at <= now) break;
    if (cancelled()) {
      return absl::CancelledError("the client has disconnected");
    }
    ended_.WaitFor(&mutex_, std::min(kPoll, found->second.loses_it_at - now));
  }
  const uint64_t number = ++last_number_;
  present_[name] = {number, SteadyNow() + stall_};
  return Turn(this, std::move(name), number);
}

void UploadTurns::Extend(const Turn& turn, absl::Time until) {
  MutexLock lock(&mutex_);
  const auto found = present_.find(turn.name_);
  if (found != present_.end() && found->second.number == turn.number_) {
    found->second.loses_it_at = until;
  }
}

void UploadTurns::End(const Turn& turn) {
  MutexLock lock(&mutex_);
  const auto found = present_.find(turn.name_);
  if (found == present_.end() || found->second.number != turn.number_) return;
  present_.erase(found);
  ended_.NotifyAll();
}

}  // namespace dapd
