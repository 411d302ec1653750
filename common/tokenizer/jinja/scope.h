// Scope: the names of a block of a template, and those of the blocks around it.
#pragma once

#include <map>
#include <string>

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

struct Scope {
  const Scope* outer = nullptr;  // outlives this one
  std::map<std::string, Value> names;

  // Undefined if no scope has the name.
  Value Lookup(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      const auto found = scope->names.find(name);
      if (found != scope->names.end()) return found->second;
    }
    return Value::MakeUndefined(name);
  }
};

}  // namespace dapd::jinja
