#include "common/rpc/transfer/policy_update.h"

#include "common/base/crc32c.h"

namespace dapd {

void UpdateProgress::Advance(uint64_t bytes) {
  MutexLock lock(&mutex_);
  bytes_ = bytes;
  changed_.NotifyAll();
}

void UpdateProgress::Finish() {
  MutexLock lock(&mutex_);
  finished_ = true;
  changed_.NotifyAll();
}

void UpdateProgress::Abandon() {
  MutexLock lock(&mutex_);
  abandoned_ = !finished_;
  changed_.NotifyAll();
}

absl::Status UpdateProgress::WaitFor(uint64_t bytes) const {
  MutexLock lock(&mutex_);
  while (bytes_ < bytes && !abandoned_) changed_.Wait(&mutex_);
  return End();
}

absl::Status UpdateProgress::WaitUntilFinished() const {
  MutexLock lock(&mutex_);
  while (!finished_ && !abandoned_) changed_.Wait(&mutex_);
  return End();
}

absl::Status UpdateProgress::End() const {
  return abandoned_ ? absl::AbortedError("writing the weights was abandoned")
                    : absl::OkStatus();
}

uint32_t ChunkChecksums::Of(uint64_t index, absl::string_view bytes) const {
  Chunk& chunk = chunks_.at(index);
  std::call_once(chunk.once, [&] { chunk.crc32c = Crc32c(bytes); });
  return chunk.crc32c;
}

}  // namespace dapd
