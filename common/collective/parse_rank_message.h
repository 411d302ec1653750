// Reads messages of proto/dapd/v1/rank.proto from the bytes of a Collective.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace dapd {

// Returns DATA_LOSS naming `what` ("the plan of a step") if the bytes are not a
// message of this type.
template <typename Message>
absl::StatusOr<Message> ParseRankMessage(const std::string& bytes,
                                         const char* what) {
  Message message;
  if (message.ParseFromString(bytes)) return message;
  return absl::DataLossError(
      absl::StrCat("a message from another rank cannot be read as ", what));
}

}  // namespace dapd
