// Budget: what a template may take while it runs, and what its operations cost
// of that. A template comes with a model, from anywhere: none may run or grow
// without end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

struct Limits {
  // A step: an expression or statement, or 64 bytes or 4 entries worked on.
  int64_t max_steps = 2'000'000;
  size_t max_output_bytes = size_t{16} << 20;
};

// Steps by what they are spent on.

// Reading the value once, not what it holds.
int64_t Cost(const Value& value);
int64_t Cost(const Arguments& arguments);
// Looking for one of its items.
int64_t LookupCost(const Value& value);
int64_t BinaryCost(const std::string& op,
                   const Value& left,
                   const Value& right);
// A filter or test of this name, or a method of this one with a dot in front of
// it, without its result.
int64_t BuiltinCost(const std::string& name,
                    const Value& object,
                    const Arguments& arguments);

// Every error is RESOURCE_EXHAUSTED.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  absl::Status CountSteps(int64_t count = 1);
  // Around a block or an expression, which may hold or call more of them.
  absl::Status Descend();
  void Ascend() { --level_; }
  // Of all that has been written, with what comes next.
  absl::Status CheckOutput(size_t bytes) const;
  absl::Status CheckSize(const Value& value) const;

  const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  int64_t steps_ = 0;
  int level_ = 0;
};

}  // namespace dapd::jinja
