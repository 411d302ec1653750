#include "common/tokenizer/settled_encoder.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {

// Returns whether a token ends in front of text[at], whatever surrounds these
// two characters.
bool IsCut(absl::string_view text, size_t at) {
  const char before = text[at - 1];
  if (text[at] == ' ') return absl::ascii_isgraph(before);
  return before == '\n' && absl::ascii_isalpha(text[at]);
}

// Returns the last cut behind `from`; 0 if there is none.
size_t LastCut(absl::string_view text, size_t from) {
  for (size_t at = text.size(); at-- > from;) {
    if (at > 0 && IsCut(text, at)) return at;
  }
  return 0;
}

}  // namespace

absl::Status SettledEncoder::Append(absl::string_view text) {
  const size_t known = pending_.size();
  absl::StrAppend(&pending_, text);
  // The pending text has no cut.
  const size_t cut = LastCut(pending_, known == 0 ? 0 : known - 1);
  if (cut == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   tokenizer_->Encode(pending_.substr(0, cut)));
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  pending_.erase(0, cut);
  return absl::OkStatus();
}

}  // namespace dapd
