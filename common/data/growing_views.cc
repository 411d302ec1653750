#include "common/data/growing_views.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";
// A character has at most four bytes, and a token has at least one.
constexpr size_t kMostPartsOfCharacter = 4;

}  // namespace

absl::Status GrowingViews::Grow(std::span<const int32_t> ids) {
  for (const ViewName name : continued_) {
    std::vector<int32_t>& prefix = views_[static_cast<size_t>(name)].input_ids;
    prefix.insert(prefix.end(), ids.begin(), ids.end());
  }
  if (shown_.empty()) return absl::OkStatus();
  undecoded_.insert(undecoded_.end(), ids.begin(), ids.end());
  ASSIGN_OR_RETURN(const std::string text, TakeText());
  for (Shown& shown : shown_) {
    RETURN_IF_ERROR(shown.text.Append(text));
    SetPrefix(shown);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> GrowingViews::TakeText() {
  const size_t held_back = std::min(undecoded_.size(), kMostPartsOfCharacter);
  for (size_t held = 0; held < held_back; ++held) {
    const auto end = undecoded_.end() - static_cast<int64_t>(held);
    ASSIGN_OR_RETURN(std::string text,
                     tokenizer_->Decode({undecoded_.begin(), end},
                                        /*skip_special_tokens=*/true));
    if (absl::EndsWith(text, kReplacementCharacter)) continue;
    undecoded_.erase(undecoded_.begin(), end);
    return text;
  }
  if (undecoded_.size() <= kMostPartsOfCharacter) return std::string();
  // These tokens do not end in an incomplete character: their bytes are not
  // UTF-8.
  ASSIGN_OR_RETURN(
      std::string text,
      tokenizer_->Decode(undecoded_, /*skip_special_tokens=*/true));
  undecoded_.clear();
  return text;
}

void GrowingViews::SetPrefix(const Shown& shown) {
  std::vector<int32_t>& prefix =
      views_[static_cast<size_t>(shown.view)].input_ids;
  const std::vector<int32_t>& ids = shown.text.ids();
  const auto limit = static_cast<size_t>(shown.limit);
  if (ids.size() > limit && shown.loses_beginning) {
    prefix.clear();
    return;
  }
  prefix.assign(
      ids.begin(),
      ids.begin() + static_cast<int64_t>(std::min(ids.size(), limit)));
}

}  // namespace dapd
