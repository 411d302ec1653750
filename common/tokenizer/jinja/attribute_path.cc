#include "common/tokenizer/jinja/attribute_path.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/attributes.h"

namespace dapd::jinja {

absl::StatusOr<AttributePath> AttributePath::Of(const Value& attribute) {
  AttributePath path;
  if (attribute.is_undefined() || attribute.is_none()) return path;
  if (attribute.is_whole()) {
    path.parts_.push_back(attribute);
    return path;
  }
  if (!attribute.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an attribute must be a name, not a ", attribute.TypeName()));
  }
  for (const absl::string_view part : absl::StrSplit(attribute.string(), '.')) {
    int64_t index = 0;
    const bool is_index =
        std::all_of(part.begin(), part.end(), absl::ascii_isdigit) &&
        absl::SimpleAtoi(part, &index);
    path.parts_.push_back(is_index ? Value(index) : Value(std::string(part)));
  }
  return path;
}

absl::StatusOr<Value> AttributePath::Follow(const Value& item,
                                            const Value& fallback) const {
  Value found = item;
  for (const Value& key : parts_) {
    ASSIGN_OR_RETURN(found, GetItem(found, key));
    if (found.is_undefined() && !fallback.is_undefined() &&
        !fallback.is_none()) {
      found = fallback;
    }
  }
  return found;
}

}  // namespace dapd::jinja
