#include "common/tokenizer/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/python_repr.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kEntryWeight = 16;
constexpr int64_t kMaxWeight = int64_t{1} << 40;
// Longer texts, in characters, are not split into characters.
constexpr size_t kMaxLetters = 100000;

// Keys have the same hash text if they are equal, and only then.
std::string HashText(const Value& key) {
  if (key.is_string()) return absl::StrCat("s", key.string());
  if (key.is_whole()) return absl::StrCat("n", key.integer());
  if (key.is_double()) {
    constexpr double kLimit = 9.2e18;
    const double d = key.number();
    if (d == std::floor(d) && std::abs(d) < kLimit) {
      return absl::StrCat("n", static_cast<int64_t>(d));
    }
    return absl::StrCat("n", FloatText(d));
  }
  if (key.is_none()) return "none";
  if (key.is_undefined()) return "undefined";
  std::string text = "t";
  for (const Value& part : key.list()) {
    const std::string hash = HashText(part);
    absl::StrAppend(&text, hash.size(), ":", hash);
  }
  return text;
}

bool SameItems(const List& a, const List& b) {
  return std::equal(a.begin(),
                    a.end(),
                    b.begin(),
                    b.end(),
                    [](const Value& x, const Value& y) { return x.Equals(y); });
}

bool SameEntries(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  // Get searches all entries, and a template may have many.
  std::map<std::string, const Value*> others;
  for (const auto& [key, value] : b) others.try_emplace(HashText(key), &value);
  return std::all_of(a.begin(), a.end(), [&](const auto& entry) {
    const auto found = others.find(HashText(entry.first));
    return found != others.end() && entry.second.Equals(*found->second);
  });
}

}  // namespace

bool IsHashable(const Value& key) {
  if (key.is_tuple()) {
    return std::all_of(key.list().begin(), key.list().end(), IsHashable);
  }
  return key.is_string() || key.is_number() || key.is_none() ||
         key.is_undefined();
}

absl::StatusOr<List> Generator::Drain() {
  if (make) {
    ASSIGN_OR_RETURN(items, make());
    make = nullptr;
  }
  List left(items.begin() + static_cast<int64_t>(next), items.end());
  next = items.size();
  return left;
}

absl::Status DictBuilder::Set(const Value& key, Value value) {
  if (!IsHashable(key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", key.TypeName(), " cannot be the key of a dict"));
  }
  const auto [place, is_new] = places_.emplace(HashText(key), dict_.size());
  if (is_new) {
    dict_.emplace_back(key, std::move(value));
  } else {
    dict_[place->second].second = std::move(value);
  }
  return absl::OkStatus();
}

void DictBuilder::Set(const std::string& key, Value value) {
  Set(Value(key), std::move(value)).IgnoreError();  // A text is always a valid
                                                    // key.
}

Value Value::MakeUndefined(absl::string_view name, bool is_unsafe) {
  Value value;
  value.data_ =
      Undefined{std::string(name.substr(0, kShownNameBytes)), is_unsafe};
  return value;
}

Value Value::MakeNone() {
  Value value;
  value.data_ = None{};
  return value;
}

Value::Value(std::string s)
    : data_(std::make_shared<const std::string>(std::move(s))) {
  weight_ += static_cast<int64_t>(string().size());
}

Value::Value(List list, Shape shape)
    : data_(std::make_shared<const List>(std::move(list))), shape_(shape) {
  for (const Value& item : this->list()) Contain(item);
  ++depth_;
}

Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {
  for (const auto& [key, item] : this->dict()) {
    weight_ = std::min(weight_ + key.weight_, kMaxWeight);
    Contain(item);
  }
  ++depth_;
}

Value Value::MakeMarkup(std::string text) {
  Value value(std::move(text));
  value.is_markup_ = true;
  return value;
}

Value Value::MakeNamespace(Dict entries) {
  Value value;
  value.data_ = std::make_shared<Namespace>(Namespace{std::move(entries)});
  return value;
}

Value Value::MakeMacro(const Macro& macro) {
  Value value;
  value.data_ = macro;
  return value;
}

Value Value::MakeObject(Object object) {
  Value value;
  value.data_ = std::make_shared<const Object>(std::move(object));
  return value;
}

Value Value::MakeGenerator(std::function<absl::StatusOr<List>()> make) {
  Value value;
  value.data_ = std::make_shared<Generator>(Generator{std::move(make), {}, 0});
  return value;
}

Value Value::MakeGenerator(List items) {
  Value value;
  for (const Value& item : items) value.Contain(item);
  value.data_ =
      std::make_shared<Generator>(Generator{nullptr, std::move(items), 0});
  return value;
}

void Value::Contain(const Value& part) {
  depth_ = std::max(depth_, part.depth_);
  weight_ = std::min(weight_ + part.weight_ + kEntryWeight, kMaxWeight);
}

bool Value::Truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0.0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  return !is_dict() || !dict().empty();
}

std::string Value::TypeName() const {
  if (is_undefined()) return absl::StrCat("undefined '", undefined().name, "'");
  if (is_none()) return "None";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_double()) return "float";
  if (is_string()) return is_markup() ? "safe string" : "string";
  if (is_namespace()) return "namespace";
  if (is_macro()) return "macro";
  if (is_object()) return object().self.empty() ? "function" : "method";
  if (is_generator()) return "generator";
  if (is_dict()) return "dict";
  switch (shape_) {
    case Shape::kList:
      return "list";
    case Shape::kTuple:
    case Shape::kGroup:
      return "tuple";
    case Shape::kRange:
      return "range";
    case Shape::kKeys:
    case Shape::kValues:
    case Shape::kItems:
      break;
  }
  return "view of a dict";
}

bool Value::Equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    return is_double() || other.is_double() ? number() == other.number()
                                            : integer() == other.integer();
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (is_string()) return string() == other.string();
  if (is_dict()) return SameEntries(dict(), other.dict());
  if (!is_list()) return IsSame(other);
  if (shape_ == Shape::kValues) return IsSame(other);
  return (shape_ == other.shape_ || (is_tuple() && other.is_tuple())) &&
         SameItems(list(), other.list());
}

bool Value::IsSame(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_namespace()) return &entries() == &other.entries();
  if (is_macro()) return macro().statement == other.macro().statement;
  if (is_object()) return &object() == &other.object();
  if (is_generator()) return &generator() == &other.generator();
  if (is_list()) return &list() == &other.list();
  if (is_dict()) return &dict() == &other.dict();
  return Equals(other);
}

Value Value::Get(const Value& key) const {
  for (const auto& [name, value] : is_namespace() ? entries() : dict()) {
    if (name.Equals(key)) return value;
  }
  return MakeUndefined(key.is_string() ? key.string() : key.TypeName());
}

Value Value::Get(absl::string_view key) const {
  for (const auto& [name, value] : is_namespace() ? entries() : dict()) {
    if (name.is_string() && name.string() == key) return value;
  }
  return MakeUndefined(key);
}

absl::Status CheckPart(const Value& value) {
  if (value.is_plain()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a ", value.TypeName(), " inside another value is not supported"));
}

absl::StatusOr<List> Iterate(const Value& value) {
  if (value.is_list()) return value.list();
  if (value.is_generator()) return value.generator().Drain();
  List items;
  if (value.is_string()) {
    const std::vector<CodePoint> letters = Characters(value.string());
    if (letters.size() > kMaxLetters) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a text of ",
                       letters.size(),
                       " characters is too long to be taken apart"));
    }
    for (const CodePoint& letter : letters) {
      items.emplace_back(
          value.string().substr(letter.begin, letter.end - letter.begin));
    }
    return items;
  }
  if (value.is_dict()) {
    for (const auto& entry : value.dict()) items.push_back(entry.first);
    return items;
  }
  if (value.is_undefined()) return items;
  return absl::InvalidArgumentError(
      absl::StrCat("a ", value.TypeName(), " cannot be iterated"));
}

}  // namespace dapd::jinja
