// Looks up the attributes and items of a value, `value.name` and `value[key]`,
// as jinja2's sandbox does in transformers. A name can be a method of the
// value: for a dict, `items` is the method even if there is an entry with this
// name.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// Returns value.name: a method or another attribute; otherwise the entry.
// Returns undefined if there is neither, and an error if `value` itself is
// undefined. Methods that would change a list or a dict are undefined, and so
// are names that begin with two underscores.
absl::StatusOr<Value> GetAttribute(const Value& value, const std::string& name);

// Returns value[key]: the entry; otherwise a method or another attribute.
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);

// Returns a method or another attribute, but no entry; undefined if there is
// none.
Value GetOwnAttribute(const Value& value, const std::string& name);

}  // namespace dapd::jinja
