// Input: 1 byte, then a ledger. If the byte is odd, every line is an event
// without its checksum, which is added first.
// With any content a ledger opens; events that are recorded then are recalled
// after the next opening.
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/log.h"
#include "services/trainer/record/ledger.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

std::string Seal(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    if (line.empty() || line.back() != '}') continue;
    line.pop_back();
    line += absl::StrFormat(",\"crc\":\"%08x\"}", Crc32c(line));
  }
  return absl::StrJoin(lines, "\n");
}

void Run(InputReader input) {
  static const ScratchFolder folder;
  SetMinLogSeverity(Severity::kError);
  const bool seal = input.Byte() % 2 == 1;
  const std::string text = input.Rest();
  const std::string path = folder.Write("ledger", seal ? Seal(text) : text);

  constexpr int64_t kStep = 1'000'000;
  RolloutResult answer;
  answer.ids = {1, 2, 3};
  answer.logprobs = {-1.5F, -0.1F, -1e-30F};
  answer.finish_reason = FinishReason::kLength;
  answer.policy_version = kStep - 1;
  answer.adapter_digest = "new";
  int64_t attempt = 0;
  {
    const auto ledger = Ledger::Open(path).value();
    attempt = ledger->attempt();
    Check(ledger->Started(kStep - 1, "new").ok(), "an attempt can begin");
    Check(ledger->attempt() == attempt + 1, "attempts are counted");
    Check(ledger->Accepted(kStep, {7}, "fresh problem", answer).ok(),
          "an answer can be recorded");
  }
  const auto again = Ledger::Open(path).value();
  Check(again->attempt() == attempt + 1, "the attempt survives");
  const RolloutResult* recalled =
      again->Recall(kStep, {7}, "fresh problem", kStep - 1, "new");
  Check(recalled != nullptr && recalled->ids == answer.ids &&
            recalled->logprobs == answer.logprobs &&
            recalled->finish_reason == answer.finish_reason,
        "the answer survives");
  Check(again->Recall(kStep, {7}, "fresh problem", kStep - 1, "old") == nullptr,
        "an answer of other weights is not recalled");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size));
  return 0;
}
