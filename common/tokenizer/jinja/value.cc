#include "common/tokenizer/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kEntryWeight = 16;
constexpr int64_t kMaxWeight = int64_t{1} << 40;
constexpr int64_t kMaxIndent = 64;

// Python's repr of a float: the shortest digits that read back the same, with
// an exponent below 1e-4 and from 1e16 on.
std::string FloatText(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char text[40];
  int decimals = 0;
  do {
    std::snprintf(text, sizeof(text), "%.*e", decimals, d);
    // strtod, since std::stod throws for what is almost 0.
  } while (std::strtod(text, nullptr) != d && ++decimals < 17);
  const int exponent = std::atoi(std::strchr(text, 'e') + 1);
  if (exponent < -4 || exponent >= 16) return text;
  // One digit behind the point at least.
  std::snprintf(
      text, sizeof(text), "%.*f", std::max(decimals - exponent, 1), d);
  return text;
}

// Appends the value to `out`.
class JsonWriter {
 public:
  JsonWriter(int64_t indent, size_t max_bytes)
      : indent_(indent), max_bytes_(max_bytes) {}

  absl::Status Write(const Value& value, int64_t depth) {
    if (out_.size() > max_bytes_) {
      return absl::ResourceExhaustedError("tojson builds too long a text");
    }
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_string()) {
      out_ += nlohmann::json(value.string()).dump();
    } else if (value.is_number()) {
      ASSIGN_OR_RETURN(const std::string text, ToText(value));
      out_ += text;
    } else if (value.is_list()) {
      return WriteEntries('[', ']', value.list(), depth);
    } else if (value.is_dict()) {
      return WriteEntries('{', '}', value.dict(), depth);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson cannot be applied to ", value.TypeName()));
    }
    return absl::OkStatus();
  }
  std::string& out() { return out_; }

 private:
  template <typename Entries>
  absl::Status WriteEntries(char open,
                            char close,
                            const Entries& entries,
                            int64_t depth) {
    out_.push_back(open);
    bool first = true;
    for (const auto& entry : entries) {
      if (!first) out_ += indent_ < 0 ? ", " : ",";
      first = false;
      Break(depth + 1);
      RETURN_IF_ERROR(WriteEntry(entry, depth + 1));
    }
    if (!first) Break(depth);
    out_.push_back(close);
    return absl::OkStatus();
  }
  absl::Status WriteEntry(const Value& item, int64_t depth) {
    return Write(item, depth);
  }
  absl::Status WriteEntry(const std::pair<std::string, Value>& item,
                          int64_t depth) {
    out_ += nlohmann::json(item.first).dump() + ": ";
    return Write(item.second, depth);
  }
  void Break(int64_t depth) {
    if (indent_ < 0) return;
    out_.push_back('\n');
    out_.append(static_cast<size_t>(indent_ * depth), ' ');
  }

  const int64_t indent_;
  const size_t max_bytes_;
  std::string out_;
};

}  // namespace

void DictBuilder::Set(const std::string& key, Value value) {
  const auto [place, is_new] = places_.emplace(key, dict_.size());
  if (is_new) {
    dict_.emplace_back(key, std::move(value));
  } else {
    dict_[place->second].second = std::move(value);
  }
}

Value::Value(std::string s)
    : data_(std::make_shared<const std::string>(std::move(s))) {
  weight_ += static_cast<int64_t>(string().size());
}

Value::Value(List list) : data_(std::make_shared<const List>(std::move(list))) {
  for (const Value& item : this->list()) Contain(item);
  ++depth_;
}

Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {
  for (const auto& [key, item] : this->dict()) {
    weight_ += static_cast<int64_t>(key.size());
    Contain(item);
  }
  ++depth_;
}

Value Value::MakeNamespace(Dict entries) {
  Value value;
  value.data_ = std::make_shared<Namespace>(Namespace{std::move(entries)});
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
  return !is_plain() || !dict().empty();
}

std::string Value::TypeName() const {
  if (is_undefined()) return absl::StrCat("undefined '", undefined_name(), "'");
  if (is_none()) return "None";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_double()) return "float";
  if (is_string()) return "string";
  if (is_namespace()) return "namespace";
  if (is_macro()) return "macro";
  return is_list() ? "list" : "dict";
}

bool Value::Equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    return is_double() || other.is_double() ? number() == other.number()
                                            : integer() == other.integer();
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_namespace()) return &entries() == &other.entries();
  if (is_macro()) return macro().statement == other.macro().statement;
  if (is_undefined() || is_none()) return true;
  if (is_string()) return string() == other.string();
  if (is_list()) {
    if (list().size() != other.list().size()) return false;
    for (size_t i = 0; i < list().size(); ++i) {
      if (!list()[i].Equals(other.list()[i])) return false;
    }
    return true;
  }
  if (dict().size() != other.dict().size()) return false;
  // Get looks through all entries, of which a template may have many.
  std::map<absl::string_view, const Value*> others;
  for (const auto& [key, value] : other.dict()) others.try_emplace(key, &value);
  const Value missing;
  for (const auto& [key, value] : dict()) {
    const auto found = others.find(key);
    if (!value.Equals(found == others.end() ? missing : *found->second)) {
      return false;
    }
  }
  return true;
}

Value Value::Get(const std::string& key) const {
  for (const auto& [name, value] : is_namespace() ? entries() : dict()) {
    if (name == key) return value;
  }
  return MakeUndefined(key);
}

absl::Status CheckPart(const Value& value) {
  if (value.is_plain()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a ", value.TypeName(), " inside another value is not supported"));
}

absl::StatusOr<std::string> ToText(const Value& value) {
  if (value.is_undefined()) return std::string();
  if (value.is_none()) return std::string("None");
  if (value.is_bool()) return std::string(value.boolean() ? "True" : "False");
  if (value.is_int()) return absl::StrCat(value.integer());
  if (value.is_double()) return FloatText(value.number());
  if (value.is_string()) return value.string();
  return absl::InvalidArgumentError(
      absl::StrCat("a ",
                   value.TypeName(),
                   value.is_macro() ? " cannot be printed; call it"
                                    : " cannot be printed; use tojson"));
}

absl::StatusOr<std::string> ToJson(const Value& value,
                                   int64_t indent,
                                   size_t max_bytes) {
  if (indent > kMaxIndent) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tojson with an indent of ", indent, "; at most ", kMaxIndent));
  }
  JsonWriter writer(indent, max_bytes);
  RETURN_IF_ERROR(writer.Write(value, 0));
  return std::move(writer.out());
}

}  // namespace dapd::jinja
