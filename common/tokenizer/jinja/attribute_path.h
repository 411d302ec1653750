// The argument `attribute` of a filter, which selects a part of each item:
// "name", "a.b.0", or a number.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

class AttributePath {
 public:
  // A path without parts selects the item itself.
  AttributePath() = default;
  // Takes a text whose parts are separated by dots, or a number; undefined and
  // None have no parts. Returns INVALID_ARGUMENT for any other value.
  static absl::StatusOr<AttributePath> Of(const Value& attribute);

  // `fallback` replaces an undefined part, unless `fallback` is None or
  // undefined.
  absl::StatusOr<Value> Follow(const Value& item,
                               const Value& fallback = Value()) const;

 private:
  List parts_;
};

}  // namespace dapd::jinja
