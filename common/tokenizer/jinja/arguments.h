// Arguments: what stands between the brackets of a call, and which of it a
// filter, test, method or function takes.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

struct Arguments {
  List positional;
  Names keywords;
};

// A call whose arguments are in the order of the parameters, undefined where
// one is absent.
struct Call {
  const Value& object;  // what the filter or test stands behind
  List values;
  const Arguments& arguments;  // as they were written

  const Value& operator[](size_t i) const { return values[i]; }
  // Whether that argument is neither absent nor None.
  bool has(size_t i) const {
    return !values[i].is_undefined() && !values[i].is_none();
  }
};

class Signature {
 public:
  // Names with spaces between them, and "?" behind each that may be absent. "/"
  // at the end: an argument cannot be given by its name. "*": whatever there
  // is, which is not bound.
  // NOLINTNEXTLINE(google-explicit-constructor): tables are lists of these.
  Signature(const char* parameters);

  // INVALID_ARGUMENT for arguments too many or too few, twice, or of unknown
  // names; `name` is whose they are.
  absl::StatusOr<List> Bind(const std::string& name,
                            const Arguments& arguments) const;

 private:
  std::vector<std::string> names_;
  size_t required_ = 0;
  bool takes_all_ = false;
  bool by_place_only_ = false;
};

struct Builtin {
  Signature signature;
  std::function<absl::StatusOr<Value>(const Call&)> run;
};
using Builtins = std::map<std::string, Builtin>;

absl::StatusOr<Value> RunBuiltin(const std::string& name,
                                 const Builtin& builtin,
                                 const Value& object,
                                 const Arguments& arguments);

// An integer argument, or what stands for one that is absent or None.
// INVALID_ARGUMENT for anything else.
absl::StatusOr<int64_t> IntegerOr(const Value& value, int64_t absent);

}  // namespace dapd::jinja
