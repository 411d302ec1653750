#include "common/tokenizer/jinja/value.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/status_macros.h"

namespace dapd::jinja {
namespace {

// Python's repr of a float: the shortest text that reads back the same.
std::string FloatText(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  std::string text;
  for (int precision = 1; precision <= 17; ++precision) {
    char buffer[40];
    std::snprintf(buffer, sizeof(buffer), "%.*g", precision, d);
    text = buffer;
    if (std::stod(text) == d) break;
  }
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

bool Value::Truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0.0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  return !dict().empty();
}

std::string Value::TypeName() const {
  if (is_undefined()) return absl::StrCat("undefined '", undefined_name(), "'");
  if (is_none()) return "None";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_double()) return "float";
  if (is_string()) return "string";
  return is_list() ? "list" : "dict";
}

bool Value::Equals(const Value& other) const {
  if (is_number() && other.is_number()) return number() == other.number();
  if (data_.index() != other.data_.index()) return false;
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
  for (const auto& [key, value] : dict()) {
    if (!value.Equals(other.Get(key))) return false;
  }
  return true;
}

Value Value::Get(const std::string& key) const {
  for (const auto& [name, value] : dict()) {
    if (name == key) return value;
  }
  return MakeUndefined(key);
}

absl::StatusOr<std::string> ToText(const Value& value) {
  if (value.is_undefined()) return std::string();
  if (value.is_none()) return std::string("None");
  if (value.is_bool()) return std::string(value.boolean() ? "True" : "False");
  if (value.is_int()) return absl::StrCat(value.integer());
  if (value.is_double()) return FloatText(value.number());
  if (value.is_string()) return value.string();
  return absl::InvalidArgumentError(
      absl::StrCat("a ", value.TypeName(), " cannot be printed; use tojson"));
}

absl::StatusOr<std::string> ToJson(const Value& value, int64_t indent) {
  const auto nested = [&](auto&& self,
                          const Value& v,
                          int64_t depth) -> absl::StatusOr<std::string> {
    if (v.is_none()) return std::string("null");
    if (v.is_bool()) return std::string(v.boolean() ? "true" : "false");
    if (v.is_string()) return nlohmann::json(v.string()).dump();
    if (v.is_number()) return ToText(v);
    if (v.is_undefined()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson of an ", v.TypeName()));
    }
    std::vector<std::string> parts;
    if (v.is_list()) {
      for (const Value& item : v.list()) {
        ASSIGN_OR_RETURN(std::string text, self(self, item, depth + 1));
        parts.push_back(std::move(text));
      }
    } else {
      for (const auto& [key, item] : v.dict()) {
        ASSIGN_OR_RETURN(const std::string text, self(self, item, depth + 1));
        parts.push_back(absl::StrCat(nlohmann::json(key).dump(), ": ", text));
      }
    }
    const char* open = v.is_list() ? "[" : "{";
    const char* close = v.is_list() ? "]" : "}";
    if (parts.empty()) return absl::StrCat(open, close);
    if (indent < 0) {
      return absl::StrCat(open, absl::StrJoin(parts, ", "), close);
    }
    const std::string inner(static_cast<size_t>(indent * (depth + 1)), ' ');
    const std::string outer(static_cast<size_t>(indent * depth), ' ');
    return absl::StrCat(open,
                        "\n",
                        inner,
                        absl::StrJoin(parts, ",\n" + inner),
                        "\n",
                        outer,
                        close);
  };
  return nested(nested, value, 0);
}

}  // namespace dapd::jinja
