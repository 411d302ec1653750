// Filters that leave the items of a list as they are.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/attribute_path.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_repr.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kMaxListParts = 1 << 20;

absl::StatusOr<Value> LengthFilter(const Call& call) {
  const Value& v = call.object;
  if (v.is_undefined()) return Value(int64_t{0});
  if (v.is_dict()) return Value(static_cast<int64_t>(v.dict().size()));
  if (v.is_list()) return Value(static_cast<int64_t>(v.list().size()));
  if (v.is_string()) {
    return Value(static_cast<int64_t>(Characters(v.string()).size()));
  }
  if (v.is_object() && v.object().name == "loop") {
    return v.object().attribute("length");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a ", v.TypeName(), " has no length"));
}

absl::StatusOr<Value> JoinFilter(const Call& call) {
  std::string mark;
  if (!call[0].is_undefined()) {
    ASSIGN_OR_RETURN(mark, ToText(call[0]));
  }
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Of(call[1]));
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) joined += mark;
    ASSIGN_OR_RETURN(const Value item, path.Follow(items[i]));
    ASSIGN_OR_RETURN(const std::string text, ToText(item));
    joined += text;
    if (joined.size() > kMaxBuiltBytes) {
      return absl::ResourceExhaustedError("join builds too long a text");
    }
  }
  return Value(std::move(joined));
}

absl::StatusOr<Value> FirstItem(const Call& call) {
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  if (items.empty()) return Value::MakeUndefined("first");
  if (call.object.is_generator()) {
    call.object.generator().GiveBack(items.size() - 1);
  }
  return items.front();
}

absl::StatusOr<Value> LastItem(const Call& call) {
  if (call.object.is_generator()) {
    return absl::InvalidArgumentError("a generator cannot be reversed");
  }
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  return items.empty() ? Value::MakeUndefined("last") : items.back();
}

absl::StatusOr<Value> ItemsFilter(const Call& call) {
  List items;
  if (call.object.is_undefined()) return Value::MakeGenerator(std::move(items));
  if (!call.object.is_dict()) {
    return absl::InvalidArgumentError("items needs a dict");
  }
  for (const auto& [key, value] : call.object.dict()) {
    items.emplace_back(List{key, value}, Shape::kTuple);
  }
  return Value::MakeGenerator(std::move(items));
}

absl::StatusOr<Value> ReverseFilter(const Call& call) {
  ASSIGN_OR_RETURN(List items, Iterate(call.object));
  std::reverse(items.begin(), items.end());
  if (!call.object.is_string()) return Value::MakeGenerator(std::move(items));
  std::string turned;
  for (const Value& letter : items) turned += letter.string();
  return Value(std::move(turned));
}

absl::StatusOr<Value> BatchFilter(const Call& call) {
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  ASSIGN_OR_RETURN(const int64_t size, IntegerOr(call[0], 0));
  List batches;
  List batch;
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) {
      batches.emplace_back(std::exchange(batch, {}));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (call.has(1) && static_cast<int64_t>(batch.size()) < size) {
      if (size > kMaxListParts) {
        return absl::ResourceExhaustedError("batch builds too large a list");
      }
      batch.resize(static_cast<size_t>(size), call[1]);
    }
    batches.emplace_back(std::move(batch));
  }
  return Value::MakeGenerator(std::move(batches));
}

absl::StatusOr<Value> SliceFilter(const Call& call) {
  ASSIGN_OR_RETURN(const List items, Iterate(call.object));
  ASSIGN_OR_RETURN(const int64_t count, IntegerOr(call[0], 0));
  if (count == 0) return absl::InvalidArgumentError("slice into 0 parts");
  if (count > kMaxListParts) {
    return absl::ResourceExhaustedError("slice builds too large a list");
  }
  List slices;
  const auto size = static_cast<int64_t>(items.size());
  const int64_t longer = count > 0 ? size % count : 0;
  auto next = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = size / count + (i < longer ? 1 : 0);
    List slice(next, next + length);
    next += length;
    if (call.has(1) && i >= longer) slice.push_back(call[1]);
    slices.emplace_back(std::move(slice));
  }
  return Value::MakeGenerator(std::move(slices));
}

}  // namespace

const Builtins& ListFilters() {
  static const auto& table = *new Builtins{
      {"batch", {"linecount fill_with?", BatchFilter}},
      {"count", {"", LengthFilter}},
      {"first", {"", FirstItem}},
      {"items", {"", ItemsFilter}},
      {"join", {"d? attribute?", JoinFilter}},
      {"last", {"", LastItem}},
      {"length", {"", LengthFilter}},
      {"list",
       {"",
        [](const Call& c) -> absl::StatusOr<Value> {
          ASSIGN_OR_RETURN(List items, Iterate(c.object));
          return Value(std::move(items));
        }}},
      {"random",
       {"*",
        [](const Call&) -> absl::StatusOr<Value> {
          return absl::InvalidArgumentError(
              "the filter 'random' is not supported: a resumed run would have "
              "other prompts");
        }}},
      {"reverse", {"", ReverseFilter}},
      {"slice", {"slices fill_with?", SliceFilter}},
  };
  return table;
}

}  // namespace dapd::jinja
