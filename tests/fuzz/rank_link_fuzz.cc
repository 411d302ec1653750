// Input: a RankStream as text: the messages of one trainer rank to another.
// A complete operation has the bytes that were sent, and sending it again gives
// equal bytes.
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/collective/rank_link.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/message_input.h"
#include "tests/fuzz/streams.pb.h"

namespace dapd {
namespace {

using Messages = std::vector<v1::RankMessage>;

RankLink LinkOver(Messages* messages, size_t* next) {
  return RankLink(
      {},
      /*peer=*/1,
      [messages, next](v1::RankMessage* message) {
        if (*next == messages->size()) return false;
        *message = (*messages)[(*next)++];
        return true;
      },
      [messages](const v1::RankMessage& message) {
        messages->push_back(message);
        return true;
      });
}

void Run(const fuzz::RankStream& stream) {
  Messages sent(stream.messages().begin(), stream.messages().end());
  for (v1::RankMessage& message : sent) {
    if (stream.good_checksums() && message.has_chunk()) {
      message.mutable_chunk()->set_crc32c(Crc32c(message.chunk().data()));
    }
  }
  size_t next = 0;
  RankLink link = LinkOver(&sent, &next);
  std::string bytes;
  for (uint64_t operation = 1; link.Receive(operation, &bytes).ok();
       ++operation) {
    Messages again;
    size_t position = 0;
    RankLink other = LinkOver(&again, &position);
    Check(other.Send(operation, bytes).ok(), "bytes can be sent");
    std::string received;
    Check(other.Receive(operation, &received).ok() && received == bytes,
          "what arrives is what was sent");
  }
}

}  // namespace
}  // namespace dapd

DAPD_FUZZ_MESSAGES(dapd::fuzz::RankStream, dapd::Run)
