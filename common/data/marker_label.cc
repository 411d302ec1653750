#include "common/data/marker_label.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace dapd {
namespace {

constexpr size_t kShownCharacters = 24;

}  // namespace

std::string MarkerLabel(absl::string_view marker) {
  size_t end = 0;
  for (size_t i = 0; i < kShownCharacters && end < marker.size(); ++i) {
    char32_t character = 0;
    end += std::max<size_t>(1, DecodeCharacter(marker.substr(end), &character));
  }
  return absl::StrCat("with \"",
                      Printable(marker.substr(0, end)),
                      end < marker.size() ? "..." : "",
                      "\"");
}

}  // namespace dapd
