// Tests, methods and functions of the template language; its filters are in
// filters.h. The parser asks which names exist; the interpreter calls them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  // The argument at `index` or of that keyword; undefined if absent.
  Value At(size_t index, const std::string& keyword) const;
};

bool IsKnownTest(const std::string& name);
bool IsKnownMethod(const std::string& name);
bool IsKnownFunction(const std::string& name);

// INVALID_ARGUMENT for arguments beyond those that this test, method or filter
// knows, which would be passed over.
absl::Status CheckArguments(const std::string& name,
                            const Arguments& arguments);

absl::StatusOr<bool> ApplyTest(const std::string& name,
                               const Value& operand,
                               const Arguments& arguments);
absl::StatusOr<Value> CallMethod(const std::string& name,
                                 const Value& object,
                                 const Arguments& arguments);
// range, namespace, dict, raise_exception; strftime_now is an error.
absl::StatusOr<Value> CallFunction(const std::string& name,
                                   const Arguments& arguments);

// Python's slicing of a list or, by code points, a string. Absent bounds are
// None.
absl::StatusOr<Value> Slice(const Value& object,
                            const Value& start,
                            const Value& stop,
                            const Value& step);

}  // namespace dapd::jinja
