// The values of a Jinja template: Python's, as far as chat templates use them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd::jinja {

class Value;
using List = std::vector<Value>;
// Keeps the order of insertion.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Undefined {
  std::string name;  // what was looked for, for messages
};
struct None {};

// A value type; lists and dicts are shared, and only a namespace's entries
// ever change (Dict through `mutable_dict`).
class Value {
 public:
  Value() : data_(Undefined{}) {}
  static Value MakeUndefined(std::string name) {
    Value value;
    value.data_ = Undefined{std::move(name)};
    return value;
  }
  static Value MakeNone() {
    Value value;
    value.data_ = None{};
    return value;
  }
  explicit Value(bool b) : data_(b) {}
  explicit Value(int64_t i) : data_(i) {}
  explicit Value(double d) : data_(d) {}
  explicit Value(std::string s) : data_(std::move(s)) {}
  explicit Value(List list)
      : data_(std::make_shared<const List>(std::move(list))) {}
  explicit Value(Dict dict) : data_(std::make_shared<Dict>(std::move(dict))) {}

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<int64_t>(); }
  bool is_double() const { return Is<double>(); }
  bool is_number() const { return is_int() || is_double() || is_bool(); }
  bool is_string() const { return Is<std::string>(); }
  bool is_list() const { return Is<std::shared_ptr<const List>>(); }
  bool is_dict() const { return Is<std::shared_ptr<Dict>>(); }

  bool boolean() const { return std::get<bool>(data_); }
  // Of an int or a bool.
  int64_t integer() const {
    return is_bool() ? (boolean() ? 1 : 0) : std::get<int64_t>(data_);
  }
  // Of any number.
  double number() const {
    return is_double() ? std::get<double>(data_)
                       : static_cast<double>(integer());
  }
  const std::string& string() const { return std::get<std::string>(data_); }
  const List& list() const {
    return *std::get<std::shared_ptr<const List>>(data_);
  }
  const Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  Dict& mutable_dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  const std::string& undefined_name() const {
    return std::get<Undefined>(data_).name;
  }

  // Python's bool().
  bool Truthy() const;
  // "string", "list", ...: for messages.
  std::string TypeName() const;
  // Python's ==.
  bool Equals(const Value& other) const;

  // The entry of a dict, or undefined.
  Value Get(const std::string& key) const;

 private:
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  std::variant<Undefined,
               None,
               bool,
               int64_t,
               double,
               std::string,
               std::shared_ptr<const List>,
               std::shared_ptr<Dict>>
      data_;
};

// What {{ value }} prints: Python's str(). INVALID_ARGUMENT for lists and
// dicts, which templates print with tojson.
absl::StatusOr<std::string> ToText(const Value& value);

// json.dumps(value, ensure_ascii=False, indent=indent); indent -1: one line.
absl::StatusOr<std::string> ToJson(const Value& value, int64_t indent);

}  // namespace dapd::jinja
