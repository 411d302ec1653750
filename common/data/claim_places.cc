#include "common/data/claim_places.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

#include "common/data/sentence_end.h"

namespace dapd {
namespace {

// Returns whether the first `size` bytes of the text end with a sentence, and
// perhaps with spaces behind it.
bool EndsWithSentence(absl::string_view text, size_t size) {
  const size_t last = text.substr(0, size).find_last_not_of(" \t");
  return last != absl::string_view::npos && EndsSentence(text, last);
}

bool IsBlank(absl::string_view text) {
  return absl::StripAsciiWhitespace(text).empty();
}

}  // namespace

std::vector<ClaimPlace> ClaimPlaces(const Tokenizer& tokenizer,
                                    std::span<const int32_t> answer) {
  std::string text;
  std::vector<size_t> begins;  // of each token in the text
  for (const int32_t id : answer) {
    begins.push_back(text.size());
    text += tokenizer.BytesOf(id).value_or("");
  }
  begins.push_back(text.size());
  std::vector<ClaimPlace> places = {{}};
  for (size_t i = 1; i < answer.size(); ++i) {
    const absl::string_view next =
        absl::string_view(text).substr(begins[i], begins[i + 1] - begins[i]);
    if (IsBlank(next) || !EndsWithSentence(text, begins[i])) continue;
    places.push_back({.tokens = static_cast<int64_t>(i),
                      .needs_space = !absl::ascii_isspace(
                          static_cast<unsigned char>(text[begins[i] - 1]))});
  }
  return places;
}

}  // namespace dapd
