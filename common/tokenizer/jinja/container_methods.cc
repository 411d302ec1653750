#include "common/tokenizer/jinja/container_methods.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace dapd::jinja {
namespace {

absl::StatusOr<Value> DictGet(const Call& call) {
  const Value found = call.object.Get(call[0]);
  if (!found.is_undefined()) return found;
  return call[1].is_undefined() ? Value::MakeNone() : call[1];
}

absl::StatusOr<Value> DictView(const Call& call, Shape shape) {
  List items;
  for (const auto& [key, value] : call.object.dict()) {
    if (shape == Shape::kKeys) {
      items.push_back(key);
    } else if (shape == Shape::kValues) {
      items.push_back(value);
    } else {
      items.emplace_back(List{key, value}, Shape::kTuple);
    }
  }
  return Value(std::move(items), shape);
}

absl::StatusOr<Value> CountItems(const Call& call) {
  int64_t count = 0;
  for (const Value& item : call.object.list()) {
    if (item.Equals(call[0])) ++count;
  }
  return Value(count);
}

absl::StatusOr<Value> IndexOf(const Call& call) {
  const List& items = call.object.list();
  const auto size = static_cast<int64_t>(items.size());
  ASSIGN_OR_RETURN(int64_t begin, IntegerOr(call[1], 0));
  ASSIGN_OR_RETURN(int64_t end, IntegerOr(call[2], size));
  if (begin < 0) begin = std::max<int64_t>(begin + size, 0);
  if (end < 0) end += size;
  for (int64_t i = begin; i < std::min(end, size); ++i) {
    if (items[static_cast<size_t>(i)].Equals(call[0])) return Value(i);
  }
  return absl::InvalidArgumentError("'index': there is no such item");
}

absl::StatusOr<Value> BitLength(const Call& call) {
  if (call.object.is_double()) {
    return absl::InvalidArgumentError("a float has no bit_length");
  }
  const int64_t number = call.object.integer();
  const uint64_t magnitude = number < 0 ? 0 - static_cast<uint64_t>(number)
                                        : static_cast<uint64_t>(number);
  return Value(static_cast<int64_t>(std::bit_width(magnitude)));
}

absl::StatusOr<Value> IsInteger(const Call& call) {
  if (!call.object.is_double()) {
    return absl::InvalidArgumentError("'is_integer' is a method of floats");
  }
  const double d = call.object.number();
  return Value(std::isfinite(d) && d == std::floor(d));
}

}  // namespace

const Builtins& DictMethods() {
  static const auto& table = *new Builtins{
      {"get", {"key default? /", DictGet}},
      {"keys", {"/", [](const Call& c) { return DictView(c, Shape::kKeys); }}},
      {"values",
       {"/", [](const Call& c) { return DictView(c, Shape::kValues); }}},
      {"items",
       {"/", [](const Call& c) { return DictView(c, Shape::kItems); }}},
      {"copy",
       {"/",
        [](const Call& c) -> absl::StatusOr<Value> {
          return Value(Dict(c.object.dict()));
        }}},
  };
  return table;
}

const Builtins& ListMethods() {
  static const auto& table = *new Builtins{
      {"count", {"item /", CountItems}},
      {"index", {"item start? stop? /", IndexOf}},
      {"copy",
       {"/",
        [](const Call& c) -> absl::StatusOr<Value> {
          if (c.object.shape() != Shape::kList) {
            return absl::InvalidArgumentError("'copy' is a method of lists");
          }
          return Value(List(c.object.list()));
        }}},
  };
  return table;
}

const Builtins& NumberMethods() {
  static const auto& table = *new Builtins{
      {"bit_length", {"/", BitLength}},
      {"is_integer", {"/", IsInteger}},
      {"conjugate",
       {"/",
        [](const Call& c) -> absl::StatusOr<Value> {
          return c.object.is_double() ? c.object : Value(c.object.integer());
        }}},
  };
  return table;
}

}  // namespace dapd::jinja
