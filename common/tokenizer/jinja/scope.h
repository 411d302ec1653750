// Scope holds the names of a block of a template, and knows the blocks around
// it.
#pragma once

#include <map>
#include <string>

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

struct Scope {
  const Scope* outer = nullptr;  // must outlive this scope
  std::map<std::string, Value> names;

  // Returns undefined if no scope has the name.
  Value Lookup(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      const auto found = scope->names.find(name);
      if (found != scope->names.end()) return found->second;
    }
    return Value::MakeUndefined(name);
  }
};

}  // namespace dapd::jinja
