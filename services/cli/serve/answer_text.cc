#include "services/cli/serve/answer_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {

// Tokenizer::Decode's text for bytes that are no character, or not yet.
constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

absl::Status AnswerText::Append(const std::vector<int32_t>& ids) {
  if (stopped_) return absl::OkStatus();
  for (const int32_t id : ids) {
    pending_.push_back(id);
    RETURN_IF_ERROR(Decode(/*is_end=*/false));
  }
  FindStop();
  return absl::OkStatus();
}

absl::Status AnswerText::Finish() {
  finished_ = true;
  if (stopped_) return absl::OkStatus();
  RETURN_IF_ERROR(Decode(/*is_end=*/true));
  FindStop();
  return absl::OkStatus();
}

absl::Status AnswerText::Decode(bool is_end) {
  if (pending_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text,
                   tokenizer_->Decode(pending_, /*skip_special_tokens=*/true));
  // The bytes of a byte-level token may be the first part of a character. A
  // text behind a whole character does not depend on the tokens before it.
  if (!is_end && absl::EndsWith(text, kReplacement)) return absl::OkStatus();
  untaken_ += text;
  pending_.clear();
  return absl::OkStatus();
}

void AnswerText::FindStop() {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    first = std::min(first, untaken_.find(stop));
  }
  if (first == std::string::npos) return;
  untaken_.resize(first);
  pending_.clear();
  stopped_ = true;
}

size_t AnswerText::HeldBytes() const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    const size_t most = std::min(stop.size() - 1, untaken_.size());
    for (size_t count = most; count > held; --count) {
      if (absl::EndsWith(untaken_, absl::string_view(stop).substr(0, count))) {
        held = count;
        break;
      }
    }
  }
  return held;
}

std::string AnswerText::Take() {
  const size_t held = stopped_ || finished_ ? 0 : HeldBytes();
  std::string taken = untaken_.substr(0, untaken_.size() - held);
  untaken_.erase(0, taken.size());
  return taken;
}

}  // namespace dapd
