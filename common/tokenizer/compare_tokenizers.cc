#include "common/tokenizer/compare_tokenizers.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/printable.h"

namespace dapd {
namespace {

using Pair = std::pair<int32_t, int32_t>;

absl::Status Differ(const std::string& what,
                    const std::string& in_first,
                    const NamedTokenizer& first,
                    const std::string& in_second,
                    const NamedTokenizer& second) {
  return DataError(absl::StrCat("the tokenizers of the two models differ: ",
                                what,
                                " is ",
                                in_first,
                                " in ",
                                JoinPath(first.folder, "tokenizer.json"),
                                " and ",
                                in_second,
                                " in ",
                                JoinPath(second.folder, "tokenizer.json"),
                                "; both models must have the same tokens"));
}

std::string TextOf(const Tokenizer& tokenizer, int32_t id) {
  const std::optional<std::string> bytes = tokenizer.BytesOf(id);
  return bytes.has_value() ? absl::StrCat("'", Printable(*bytes), "'")
                           : "missing";
}

std::string TextOf(const Tokenizer& tokenizer,
                   const std::vector<Pair>& merges,
                   size_t index) {
  if (index >= merges.size()) return "missing";
  return absl::StrCat(TextOf(tokenizer, merges[index].first),
                      " with ",
                      TextOf(tokenizer, merges[index].second));
}

const char* KindOf(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.IsAdded(id) ? "an added token" : "a token of the vocabulary";
}

}  // namespace

absl::Status CompareTokenizers(const NamedTokenizer& first,
                               const NamedTokenizer& second) {
  const Tokenizer& a = first.tokenizer;
  const Tokenizer& b = second.tokenizer;
  for (int32_t id = 0; id < std::max(a.size(), b.size()); ++id) {
    if (a.BytesOf(id) != b.BytesOf(id)) {
      return Differ(absl::StrCat("token ", id),
                    TextOf(a, id),
                    first,
                    TextOf(b, id),
                    second);
    }
    if (a.IsAdded(id) != b.IsAdded(id)) {
      return Differ(absl::StrCat("token ", id, " (", TextOf(a, id), ")"),
                    KindOf(a, id),
                    first,
                    KindOf(b, id),
                    second);
    }
  }
  const std::vector<Pair> merges_a = a.Merges();
  const std::vector<Pair> merges_b = b.Merges();
  for (size_t i = 0; i < std::max(merges_a.size(), merges_b.size()); ++i) {
    const bool both = i < merges_a.size() && i < merges_b.size();
    if (both && merges_a[i] == merges_b[i]) continue;
    return Differ(absl::StrCat("merge ", i + 1),
                  TextOf(a, merges_a, i),
                  first,
                  TextOf(b, merges_b, i),
                  second);
  }
  return absl::OkStatus();
}

}  // namespace dapd
