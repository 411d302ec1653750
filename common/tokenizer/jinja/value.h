// The values of a Jinja template: Python's, as far as chat templates use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd::jinja {

class Value;
struct Scope;
struct Statement;
using List = std::vector<Value>;
// Keeps the order of insertion.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Undefined {
  std::string name;  // what was looked for, for messages
};
struct None {};
// What {% macro %} makes: what to run, and the scope that this stands in.
struct Macro {
  const Statement* statement = nullptr;
  const Scope* scope = nullptr;
};

// A value type whose copies share texts, lists and dicts. Only a namespace's
// entries ever change. Neither a namespace nor a macro is ever part of another
// value, so that no value contains itself and no macro outlives its scope.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  // Of a long name only the beginning is kept.
  static Value MakeUndefined(absl::string_view name) {
    Value value;
    value.data_ = Undefined{std::string(name.substr(0, kShownNameBytes))};
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
  explicit Value(std::string s);
  explicit Value(List list);
  explicit Value(Dict dict);
  // An object whose entries a template may set.
  static Value MakeNamespace(Dict entries);
  static Value MakeMacro(const Macro& macro) {
    Value value;
    value.data_ = macro;
    return value;
  }

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<int64_t>(); }
  bool is_double() const { return Is<double>(); }
  bool is_number() const { return is_int() || is_double() || is_bool(); }
  bool is_string() const { return Is<std::shared_ptr<const std::string>>(); }
  bool is_list() const { return Is<std::shared_ptr<const List>>(); }
  bool is_dict() const { return Is<std::shared_ptr<const Dict>>(); }
  bool is_namespace() const { return Is<std::shared_ptr<Namespace>>(); }
  bool is_macro() const { return Is<Macro>(); }
  // Whether it may be part of another value.
  bool is_plain() const { return !is_namespace() && !is_macro(); }

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
  const std::string& string() const {
    return *std::get<std::shared_ptr<const std::string>>(data_);
  }
  const List& list() const {
    return *std::get<std::shared_ptr<const List>>(data_);
  }
  const Dict& dict() const {
    return *std::get<std::shared_ptr<const Dict>>(data_);
  }
  // Of a namespace.
  Dict& entries() const {
    return std::get<std::shared_ptr<Namespace>>(data_)->entries;
  }
  const Macro& macro() const { return std::get<Macro>(data_); }
  const std::string& undefined_name() const {
    return std::get<Undefined>(data_).name;
  }

  // Python's bool().
  bool Truthy() const;
  // "string", "list", ...: for messages.
  std::string TypeName() const;
  // Python's ==.
  bool Equals(const Value& other) const;

  // Levels of lists and dicts, 0 for anything else.
  int depth() const { return depth_; }
  // Bytes of text and a few for each entry, counted as often as they occur:
  // what comparing or writing the whole value costs. Saturates.
  int64_t weight() const { return weight_; }

  // The entry of a dict or namespace, or undefined.
  Value Get(const std::string& key) const;

 private:
  static constexpr size_t kShownNameBytes = 100;

  struct Namespace {
    Dict entries;
  };
  void Contain(const Value& part);

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  std::variant<Undefined,
               None,
               bool,
               int64_t,
               double,
               std::shared_ptr<const std::string>,
               std::shared_ptr<const List>,
               std::shared_ptr<const Dict>,
               std::shared_ptr<Namespace>,
               Macro>
      data_;
  int depth_ = 0;
  int64_t weight_ = 1;
};

// Makes a dict as Python does: a key that comes again keeps its place and takes
// the new value.
class DictBuilder {
 public:
  void Set(const std::string& key, Value value);
  Dict Take() { return std::move(dict_); }

 private:
  Dict dict_;
  std::map<std::string, size_t> places_;
};

// INVALID_ARGUMENT unless the value is_plain.
absl::Status CheckPart(const Value& value);

// What {{ value }} prints: Python's str(). INVALID_ARGUMENT for lists and
// dicts, which templates print with tojson.
absl::StatusOr<std::string> ToText(const Value& value);

// json.dumps(value, ensure_ascii=False, indent=indent); indent -1: one line.
// RESOURCE_EXHAUSTED past `max_bytes`.
absl::StatusOr<std::string> ToJson(const Value& value,
                                   int64_t indent,
                                   size_t max_bytes);

}  // namespace dapd::jinja
