// Budget limits what a template may consume while it runs; the cost functions
// define the price of its operations. A template comes with a model, from any
// source, and must not run or grow without end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

struct Limits {
  // A step is an expression or statement, or work on 64 bytes or 4 entries.
  int64_t max_steps = 2'000'000;
  size_t max_output_bytes = size_t{16} << 20;
};

// The following functions return costs in steps.

// Returns the cost of reading the value once, without the values that it holds.
int64_t Cost(const Value& value);
int64_t Cost(const Arguments& arguments);
// Returns the cost of finding one of the value's items.
int64_t LookupCost(const Value& value);
int64_t BinaryCost(const std::string& op,
                   const Value& left,
                   const Value& right);
// Returns the cost of a filter or test `name`, or of a method `name` that
// begins with a dot, without its result.
int64_t BuiltinCost(const std::string& name,
                    const Value& object,
                    const Arguments& arguments);

// Every error is RESOURCE_EXHAUSTED.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  absl::Status CountSteps(int64_t count = 1);
  // Descend begins, and Ascend ends, a block or an expression, which may hold
  // or call others.
  absl::Status Descend();
  void Ascend() { --level_; }
  // `bytes` is the size of all output so far, with the next text.
  absl::Status CheckOutput(size_t bytes) const;
  absl::Status CheckSize(const Value& value) const;

  const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  int64_t steps_ = 0;
  int level_ = 0;
};

}  // namespace dapd::jinja
