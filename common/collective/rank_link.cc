#include "common/collective/rank_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace dapd {

absl::Status RanksCancelled(const RankOptions& options) {
  return absl::CancelledError(
      absl::StrCat("the ", options.called, "s were told to stop"));
}

RankLink::RankLink(const RankOptions& options,
                   int peer,
                   ReadMessage read,
                   WriteMessage write)
    : peer_(absl::StrCat(options.called, " ", peer)),
      when_lost_(options.when_lost),
      read_(std::move(read)),
      write_(std::move(write)) {}

absl::Status RankLink::Lost() const {
  return absl::AbortedError(absl::StrCat(peer_, " is lost; ", when_lost_));
}

absl::Status RankLink::SendChunk(uint64_t operation,
                                 uint64_t total,
                                 uint64_t offset,
                                 absl::string_view data) {
  v1::RankMessage message;
  v1::RankChunk& chunk = *message.mutable_chunk();
  chunk.set_operation(operation);
  chunk.set_total_bytes(total);
  chunk.set_offset(offset);
  chunk.set_data(data.data(), data.size());
  chunk.set_crc32c(Crc32c(data));
  return write_(message) ? absl::OkStatus() : Lost();
}

absl::Status RankLink::ReceiveChunk(uint64_t operation,
                                    uint64_t offset,
                                    uint64_t* total,
                                    std::string* data) {
  v1::RankMessage message;
  if (!read_(&message)) return Lost();
  const v1::RankChunk& chunk = message.chunk();
  if (!message.has_chunk() || chunk.operation() != operation ||
      chunk.offset() != offset ||
      (*total != 0 && chunk.total_bytes() != *total) ||
      chunk.total_bytes() > kMaxRankBytes ||
      chunk.data().size() > kRankChunkBytes ||
      offset + chunk.data().size() > chunk.total_bytes()) {
    return absl::DataLossError(
        absl::StrCat(peer_,
                     " is at a different operation (",
                     chunk.operation(),
                     ", ",
                     chunk.total_bytes(),
                     " bytes) from this rank's (",
                     operation,
                     "): do all ranks run the same program and data?"));
  }
  if (Crc32c(chunk.data()) != chunk.crc32c()) {
    return absl::DataLossError(
        absl::StrCat("a chunk from ", peer_, " was damaged in transit"));
  }
  *total = chunk.total_bytes();
  *data = std::move(*message.mutable_chunk()->mutable_data());
  return absl::OkStatus();
}

absl::Status RankLink::Send(uint64_t operation, absl::string_view bytes) {
  uint64_t offset = 0;
  do {
    const absl::string_view part = bytes.substr(offset, kRankChunkBytes);
    RETURN_IF_ERROR(SendChunk(operation, bytes.size(), offset, part));
    offset += part.size();
  } while (offset < bytes.size());
  return absl::OkStatus();
}

absl::Status RankLink::Receive(uint64_t operation, std::string* bytes) {
  bytes->clear();
  uint64_t total = 0;
  do {
    std::string part;
    RETURN_IF_ERROR(ReceiveChunk(operation, bytes->size(), &total, &part));
    if (part.empty() && bytes->size() < total) {
      return absl::DataLossError(absl::StrCat(peer_, " sent an empty chunk"));
    }
    bytes->append(part);
  } while (bytes->size() < total);
  return absl::OkStatus();
}

}  // namespace dapd
