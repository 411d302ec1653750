// The attributes and items of a value, `value.name` and `value[key]`, as
// jinja2's sandbox gives them in transformers. A name can be a method of the
// value, as `items` of a dict is even where an entry has that name.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// value.name: a method or another attribute, else the entry. Undefined where
// there is neither; an error where `value` is undefined itself. The methods
// that would change a list or a dict are undefined, and so is what begins with
// two underscores.
absl::StatusOr<Value> GetAttribute(const Value& value, const std::string& name);

// value[key]: the entry, else a method or another attribute.
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);

// A method or another attribute that is no entry; undefined if there is none.
Value GetOwnAttribute(const Value& value, const std::string& name);

}  // namespace dapd::jinja
