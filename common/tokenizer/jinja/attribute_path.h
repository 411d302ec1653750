// The argument `attribute` of a filter, which says what of each item counts:
// "name", "a.b.0", or a number.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

class AttributePath {
 public:
  // Without parts, what there is is the item itself.
  AttributePath() = default;
  // Takes a text, whose parts have dots between them, or a number; undefined
  // and None have no parts. INVALID_ARGUMENT for anything else.
  static absl::StatusOr<AttributePath> Of(const Value& attribute);

  // `fallback` stands for a part that is undefined, unless it is None or
  // undefined itself.
  absl::StatusOr<Value> Follow(const Value& item,
                               const Value& fallback = Value()) const;

 private:
  List parts_;
};

}  // namespace dapd::jinja
