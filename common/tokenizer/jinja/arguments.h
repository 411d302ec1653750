// Binds the arguments of a call to the parameters of a filter, test, method or
// function.
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

// Holds the arguments of a call in the order of the parameters; an absent
// argument is undefined.
struct Call {
  const Value& object;  // the filter's or test's operand
  List values;
  const Arguments& arguments;  // the arguments as written

  const Value& operator[](size_t i) const { return values[i]; }
  // Returns whether argument `i` is neither absent nor None.
  bool has(size_t i) const {
    return !values[i].is_undefined() && !values[i].is_none();
  }
};

class Signature {
 public:
  // `parameters` are names with spaces between them; a "?" follows each
  // optional name. A "/" at the end means that no argument can be given by
  // name. "*" accepts any arguments and binds none.
  // NOLINTNEXTLINE(google-explicit-constructor): tables are lists of these.
  Signature(const char* parameters);

  // Returns INVALID_ARGUMENT for too many or too few arguments, for an argument
  // that is given twice, and for unknown names. The message names the function
  // `name`.
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

// Returns an integer argument, or `absent` if the argument is absent or None.
// Returns INVALID_ARGUMENT for any other value.
absl::StatusOr<int64_t> IntegerOr(const Value& value, int64_t absent);

}  // namespace dapd::jinja
