// Represents the values of a Jinja template: the Python values that chat
// templates use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd::jinja {

class Value;
struct Arguments;
struct Scope;
struct Statement;
using List = std::vector<Value>;
// Keeps the order of insertion. Its keys are hashable.
using Dict = std::vector<std::pair<Value, Value>>;
using Names = std::vector<std::pair<std::string, Value>>;

// Names Python's type of a list of values.
enum class Shape {
  kList,
  kTuple,
  kGroup,  // a tuple of groupby, whose parts have the names grouper and list
  kKeys,   // view of a dict; the next two are views, too
  kValues,
  kItems,
  kRange,
};

struct Undefined {
  std::string name;  // name that was looked up, for messages
  bool is_unsafe = false;
};
struct None {};
// Holds the value that {% macro %} makes: the statement to run, and its scope.
struct Macro {
  const Statement* statement = nullptr;
  const Scope* scope = nullptr;
};
// Holds a value that a template may call or ask for attributes: a function, a
// bound method, `loop`, a cycler. A template may neither print it nor make it
// part of another value.
struct Object {
  std::string name;  // "range", "strip", for messages
  List self;         // object of a bound method; otherwise empty
  std::function<absl::StatusOr<Value>(const Arguments&)> call;  // may be empty
  // Returns undefined for an unknown attribute; may be empty.
  std::function<Value(const std::string&)> attribute;
};
// Yields its items once, one after the other. The items are made when the first
// is asked for.
struct Generator {
  std::function<absl::StatusOr<List>()> make;
  List items;
  size_t next = 0;

  // Returns the remaining items. If `make` fails, every call returns its error.
  absl::StatusOr<List> Drain();
  // Puts back the last `count` items of Drain's result, so that the next call
  // of Drain returns them.
  void GiveBack(size_t count) { next -= count; }
};

// Value is a value type whose copies share texts, lists and dicts. Only the
// entries of a namespace and the state of a generator or an object ever change.
// No namespace, macro or object is ever part of another value, so no value
// contains itself and no macro outlives its scope.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  // Keeps only the beginning of a long name.
  static Value MakeUndefined(absl::string_view name, bool is_unsafe = false);
  static Value MakeNone();
  explicit Value(bool b) : data_(b) {}
  explicit Value(int64_t i) : data_(i) {}
  explicit Value(double d) : data_(d) {}
  explicit Value(std::string s);
  explicit Value(List list, Shape shape = Shape::kList);
  explicit Value(Dict dict);
  // Makes a text as `escape` and `safe` return it.
  static Value MakeMarkup(std::string text);
  // Makes an object whose entries a template may set.
  static Value MakeNamespace(Dict entries);
  static Value MakeMacro(const Macro& macro);
  static Value MakeObject(Object object);
  static Value MakeGenerator(std::function<absl::StatusOr<List>()> make);
  // Makes a generator of existing items.
  static Value MakeGenerator(List items);

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<int64_t>(); }
  bool is_double() const { return Is<double>(); }
  bool is_number() const { return is_int() || is_double() || is_bool(); }
  bool is_whole() const { return is_int() || is_bool(); }
  bool is_string() const { return Is<std::shared_ptr<const std::string>>(); }
  bool is_markup() const { return is_markup_; }
  // Returns true for every Shape.
  bool is_list() const { return Is<std::shared_ptr<const List>>(); }
  bool is_tuple() const {
    return is_list() && (shape_ == Shape::kTuple || shape_ == Shape::kGroup);
  }
  // Returns whether items can be looked up by index.
  bool is_sequence() const {
    return is_list() && shape_ != Shape::kKeys && shape_ != Shape::kValues &&
           shape_ != Shape::kItems;
  }
  bool is_dict() const { return Is<std::shared_ptr<const Dict>>(); }
  bool is_namespace() const { return Is<std::shared_ptr<Namespace>>(); }
  bool is_macro() const { return Is<Macro>(); }
  bool is_object() const { return Is<std::shared_ptr<const Object>>(); }
  bool is_generator() const { return Is<std::shared_ptr<Generator>>(); }
  // Returns whether the value may be part of another value.
  bool is_plain() const {
    return !is_namespace() && !is_macro() && !is_object();
  }

  bool boolean() const { return std::get<bool>(data_); }
  // The value must be an int or a bool.
  int64_t integer() const {
    return is_bool() ? (boolean() ? 1 : 0) : std::get<int64_t>(data_);
  }
  // The value must be a number.
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
  // The value must be a list.
  Shape shape() const { return shape_; }
  const Dict& dict() const {
    return *std::get<std::shared_ptr<const Dict>>(data_);
  }
  // The value must be a namespace.
  Dict& entries() const {
    return std::get<std::shared_ptr<Namespace>>(data_)->entries;
  }
  const Macro& macro() const { return std::get<Macro>(data_); }
  const Object& object() const {
    return *std::get<std::shared_ptr<const Object>>(data_);
  }
  Generator& generator() const {
    return *std::get<std::shared_ptr<Generator>>(data_);
  }
  const Undefined& undefined() const { return std::get<Undefined>(data_); }

  // Implements Python's bool().
  bool Truthy() const;
  // Returns "string", "list", ... for messages.
  std::string TypeName() const;
  // Implements Python's ==.
  bool Equals(const Value& other) const;
  // Implements Python's `is`, for values that copies share.
  bool IsSame(const Value& other) const;

  // Returns the levels of lists and dicts; 0 for other values.
  int depth() const { return depth_; }
  // Returns the cost of comparing or writing the whole value: the bytes of its
  // texts and a few for each entry, counted as often as they occur. Saturates.
  int64_t weight() const { return weight_; }

  // Return the entry of a dict or namespace, or undefined.
  Value Get(const Value& key) const;
  Value Get(absl::string_view key) const;

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
               std::shared_ptr<const Object>,
               std::shared_ptr<Generator>,
               Macro>
      data_;
  Shape shape_ = Shape::kList;
  bool is_markup_ = false;
  int depth_ = 0;
  int64_t weight_ = 1;
};

// Builds a dict as Python does: a key that occurs again keeps its place and
// takes the new value.
class DictBuilder {
 public:
  // Returns INVALID_ARGUMENT for a key that Python cannot hash.
  absl::Status Set(const Value& key, Value value);
  void Set(const std::string& key, Value value);
  size_t size() const { return dict_.size(); }
  Dict Take() { return std::move(dict_); }

 private:
  Dict dict_;
  std::unordered_map<std::string, size_t> places_;
};

// Returns whether the value may be the key of a dict.
bool IsHashable(const Value& key);

// Returns INVALID_ARGUMENT unless the value is_plain.
absl::Status CheckPart(const Value& value);

// Returns the items that Python's iter() yields: a copy of the list, the keys
// of a dict, the characters of a text, the remaining items of a generator,
// nothing for an undefined value. Returns INVALID_ARGUMENT for other values,
// and RESOURCE_EXHAUSTED for a long text.
absl::StatusOr<List> Iterate(const Value& value);

}  // namespace dapd::jinja
