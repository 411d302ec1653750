// RankLink: one end of a RankService stream, as operations of bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/collective/rank_options.h"
#include "dapd/v1/rank.pb.h"

namespace dapd {

// The bytes of a chunk: whole floats.
inline constexpr size_t kRankChunkBytes = size_t{1} << 20;
// The longest broadcast or gather: an adapter with its moments and snapshot.
inline constexpr uint64_t kMaxRankBytes = uint64_t{1} << 36;

// What an operation ends with that Cancel broke.
absl::Status RanksCancelled(const RankOptions& options);

// Not thread-safe. The stream's two halves come as functions, so that client
// and server streams are the same here.
class RankLink {
 public:
  using ReadMessage = std::function<bool(v1::RankMessage* message)>;
  using WriteMessage = std::function<bool(const v1::RankMessage& message)>;

  // To rank `peer`.
  RankLink(const RankOptions& options,
           int peer,
           ReadMessage read,
           WriteMessage write);

  // One chunk of `total` bytes at `offset` of operation `operation`.
  absl::Status SendChunk(uint64_t operation,
                         uint64_t total,
                         uint64_t offset,
                         absl::string_view data);
  // The next chunk, which must be that of `operation` at `offset`. `total` 0:
  // takes the sender's.
  absl::Status ReceiveChunk(uint64_t operation,
                            uint64_t offset,
                            uint64_t* total,
                            std::string* data);

  // A whole operation in one direction.
  absl::Status Send(uint64_t operation, absl::string_view bytes);
  absl::Status Receive(uint64_t operation, std::string* bytes);

  // "trainer rank 2", for messages.
  const std::string& peer() const { return peer_; }

 private:
  absl::Status Lost() const;

  const std::string peer_;
  const std::string when_lost_;
  const ReadMessage read_;
  const WriteMessage write_;
};

}  // namespace dapd
