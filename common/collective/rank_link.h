// RankLink: one end of a RankService stream. It turns operations on bytes into
// messages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/collective/rank_options.h"
#include "dapd/v1/rank.pb.h"

namespace dapd {

// The size of a chunk, a whole number of floats.
inline constexpr size_t kRankChunkBytes = size_t{1} << 20;
// The longest broadcast or gather: an adapter with its moments and its
// snapshot.
inline constexpr uint64_t kMaxRankBytes = uint64_t{1} << 36;

// Returns the error of an operation that Cancel ended.
absl::Status RanksCancelled(const RankOptions& options);

// Not thread-safe. The two directions of the stream are passed as functions, so
// that client and server streams look the same here.
class RankLink {
 public:
  using ReadMessage = std::function<bool(v1::RankMessage* message)>;
  using WriteMessage = std::function<bool(const v1::RankMessage& message)>;

  // Makes the link to rank `peer`.
  RankLink(const RankOptions& options,
           int peer,
           ReadMessage read,
           WriteMessage write);

  // Sends one chunk of operation `operation`, whose total is `total` bytes,
  // from `offset` on.
  absl::Status SendChunk(uint64_t operation,
                         uint64_t total,
                         uint64_t offset,
                         absl::string_view data);
  // Receives the next chunk, which must belong to `operation` and begin at
  // `offset`. If `total` is 0, it is set to the sender's total.
  absl::Status ReceiveChunk(uint64_t operation,
                            uint64_t offset,
                            uint64_t* total,
                            std::string* data);

  // Sends or receives a whole operation in one direction.
  absl::Status Send(uint64_t operation, absl::string_view bytes);
  absl::Status Receive(uint64_t operation, std::string* bytes);

  // Returns "trainer rank 2", for messages.
  const std::string& peer() const { return peer_; }

 private:
  absl::Status Lost() const;

  const std::string peer_;
  const std::string when_lost_;
  const ReadMessage read_;
  const WriteMessage write_;
};

}  // namespace dapd
