#include "common/data/arrow_cell.h"

#include <arrow/array/array_decimal.h>
#include <arrow/array/array_nested.h>
#include <arrow/array/array_run_end.h>
#include <arrow/extension_type.h>
#include <arrow/type.h>
#include <arrow/util/float16.h>

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"

#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/data/json_text.h"

namespace dapd {
namespace {

using Text = absl::StatusOr<std::optional<std::string>>;

constexpr int64_t kMillisecondsPerDay = int64_t{24} * 60 * 60 * 1000;

absl::Status Refuse(absl::string_view why) {
  return absl::InvalidArgumentError(why);
}

template <typename Array>
auto ValueOf(const arrow::Array& array, int64_t row) {
  return static_cast<const Array&>(array).Value(row);
}

template <typename Array>
std::string StringOf(const arrow::Array& array, int64_t row) {
  return static_cast<const Array&>(array).GetString(row);
}

template <typename Array>
std::string WholeNumber(const arrow::Array& array, int64_t row) {
  return absl::StrCat(ValueOf<Array>(array, row));
}

template <typename Array>
std::string DecimalOf(const arrow::Array& array, int64_t row) {
  return static_cast<const Array&>(array).FormatValue(row);
}

absl::StatusOr<std::string> JsonCellText(const nlohmann::json& value) {
  auto text = JsonText(value, "");
  if (text.ok()) return text;
  return Refuse(absl::StripLeadingAsciiWhitespace(text.status().message()));
}

Text FloatingPoint(double value) {
  if (!std::isfinite(value)) {
    return Refuse(
        "holds a number that is not finite, which JSON does not have");
  }
  return JsonCellText(value);
}

// `days` counts from 1970-01-01.
Text Date(int64_t days) {
  // Python's dates reach from year 1 to year 9999.
  if (days < -719162 || days > 2932896) {
    return Refuse("holds a date outside the years 1 to 9999");
  }
  const absl::CivilDay day = absl::CivilDay(1970, 1, 1) + days;
  return absl::StrFormat("%04d-%02d-%02d", day.year(), day.month(), day.day());
}

int64_t DaysOf(int64_t milliseconds) {
  return milliseconds / kMillisecondsPerDay -
         (milliseconds % kMillisecondsPerDay < 0 ? 1 : 0);
}

// pandas and polars write a category as a number that stands for a text.
Text Category(const arrow::DictionaryArray& array, int64_t row) {
  const int64_t index = array.GetValueIndex(row);
  if (index < 0 || index >= array.dictionary()->length()) {
    return Refuse("has a category outside its dictionary");
  }
  return CellText(*array.dictionary(), index);
}

Text RunEnd(const arrow::RunEndEncodedArray& array, int64_t row) {
  const std::shared_ptr<arrow::Array> rest = array.Slice(row, 1);
  const int64_t index =
      static_cast<const arrow::RunEndEncodedArray&>(*rest).FindPhysicalOffset();
  if (index < 0 || index >= array.values()->length()) {
    return Refuse("has a run outside its values");
  }
  return CellText(*array.values(), index);
}

Text Json(const std::string& cell) {
  const auto value = ParseJson(cell, "");
  if (!value.ok()) {
    return Refuse(absl::StrCat("holds text that is not JSON",
                               std::string(value.status().message())));
  }
  if (value->is_null()) return std::nullopt;
  if (value->is_structured()) {
    return Refuse(
        absl::StrCat("holds ", value->type_name(), "; a string is needed"));
  }
  return JsonCellText(*value);
}

Text Uuid(const std::string& bytes) {
  const std::string digits = absl::BytesToHexString(bytes);
  if (digits.size() != 32) return Refuse("has a UUID without exactly 16 bytes");
  const absl::string_view d = digits;
  return absl::StrCat(d.substr(0, 8),
                      "-",
                      d.substr(8, 4),
                      "-",
                      d.substr(12, 4),
                      "-",
                      d.substr(16, 4),
                      "-",
                      d.substr(20));
}

std::string NoTextOf(const arrow::DataType& type) {
  if (arrow::is_nested(type.id())) {
    return absl::StrCat(
        "has the nested type ", type.ToString(), "; a string is needed");
  }
  if (arrow::is_base_binary_like(type.id()) ||
      type.id() == arrow::Type::BINARY_VIEW ||
      type.id() == arrow::Type::FIXED_SIZE_BINARY) {
    return absl::StrCat("holds bytes (", type.ToString(), "), not a string");
  }
  return absl::StrCat("has the type ",
                      type.ToString(),
                      ", which has no unique text; write it as a string");
}

Text ExtensionText(const arrow::ExtensionArray& array, int64_t row) {
  const auto& type = static_cast<const arrow::ExtensionType&>(*array.type());
  const std::string name = type.extension_name();
  const arrow::Array& storage = *array.storage();
  if (name == "arrow.json") {
    ASSIGN_OR_RETURN(const auto cell, CellText(storage, row));
    if (!cell.has_value()) return std::nullopt;
    return Json(*cell);
  }
  if (name == "arrow.uuid" &&
      storage.type_id() == arrow::Type::FIXED_SIZE_BINARY) {
    return Uuid(
        static_cast<const arrow::FixedSizeBinaryArray&>(storage).GetString(
            row));
  }
  if (name == "arrow.bool8" && storage.type_id() == arrow::Type::INT8) {
    return ValueOf<arrow::Int8Array>(storage, row) != 0 ? "true" : "false";
  }
  return Refuse(NoTextOf(type));
}

}  // namespace

Text CellText(const arrow::Array& array, int64_t row) {
  if (array.IsNull(row)) return std::nullopt;
  switch (array.type_id()) {
    case arrow::Type::NA:
      return std::nullopt;
    case arrow::Type::STRING:
      return StringOf<arrow::StringArray>(array, row);
    case arrow::Type::LARGE_STRING:
      return StringOf<arrow::LargeStringArray>(array, row);
    case arrow::Type::STRING_VIEW:
      return StringOf<arrow::StringViewArray>(array, row);
    case arrow::Type::BOOL:
      return ValueOf<arrow::BooleanArray>(array, row) ? "true" : "false";
    case arrow::Type::INT8:
      return WholeNumber<arrow::Int8Array>(array, row);
    case arrow::Type::INT16:
      return WholeNumber<arrow::Int16Array>(array, row);
    case arrow::Type::INT32:
      return WholeNumber<arrow::Int32Array>(array, row);
    case arrow::Type::INT64:
      return WholeNumber<arrow::Int64Array>(array, row);
    case arrow::Type::UINT8:
      return WholeNumber<arrow::UInt8Array>(array, row);
    case arrow::Type::UINT16:
      return WholeNumber<arrow::UInt16Array>(array, row);
    case arrow::Type::UINT32:
      return WholeNumber<arrow::UInt32Array>(array, row);
    case arrow::Type::UINT64:
      return WholeNumber<arrow::UInt64Array>(array, row);
    case arrow::Type::HALF_FLOAT:
      return FloatingPoint(arrow::util::Float16::FromBits(
                               ValueOf<arrow::HalfFloatArray>(array, row))
                               .ToDouble());
    case arrow::Type::FLOAT:
      return FloatingPoint(ValueOf<arrow::FloatArray>(array, row));
    case arrow::Type::DOUBLE:
      return FloatingPoint(ValueOf<arrow::DoubleArray>(array, row));
    case arrow::Type::DECIMAL32:
      return DecimalOf<arrow::Decimal32Array>(array, row);
    case arrow::Type::DECIMAL64:
      return DecimalOf<arrow::Decimal64Array>(array, row);
    case arrow::Type::DECIMAL128:
      return DecimalOf<arrow::Decimal128Array>(array, row);
    case arrow::Type::DECIMAL256:
      return DecimalOf<arrow::Decimal256Array>(array, row);
    case arrow::Type::DATE32:
      return Date(ValueOf<arrow::Date32Array>(array, row));
    case arrow::Type::DATE64:
      return Date(DaysOf(ValueOf<arrow::Date64Array>(array, row)));
    case arrow::Type::DICTIONARY:
      return Category(static_cast<const arrow::DictionaryArray&>(array), row);
    case arrow::Type::RUN_END_ENCODED:
      return RunEnd(static_cast<const arrow::RunEndEncodedArray&>(array), row);
    case arrow::Type::EXTENSION:
      return ExtensionText(static_cast<const arrow::ExtensionArray&>(array),
                           row);
    default:
      return Refuse(NoTextOf(*array.type()));
  }
}

namespace {

using JsonValue = absl::StatusOr<nlohmann::ordered_json>;

constexpr int kMaxCellDepth = 64;

JsonValue JsonOf(const arrow::Array& array, int64_t row, int depth);

// `values` has the items from `begin` on.
JsonValue ItemsJson(const arrow::Array& values,
                    int64_t begin,
                    int64_t count,
                    int depth) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (int64_t i = begin; i < begin + count; ++i) {
    ASSIGN_OR_RETURN(nlohmann::ordered_json item, JsonOf(values, i, depth));
    list.push_back(std::move(item));
  }
  return list;
}

template <typename Array>
JsonValue ListJson(const arrow::Array& array, int64_t row, int depth) {
  const auto& list = static_cast<const Array&>(array);
  return ItemsJson(
      *list.values(), list.value_offset(row), list.value_length(row), depth);
}

JsonValue StructJson(const arrow::StructArray& array, int64_t row, int depth) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  const arrow::FieldVector& fields = array.type()->fields();
  for (int i = 0; i < array.num_fields(); ++i) {
    const std::string& name = fields[static_cast<size_t>(i)]->name();
    if (object.contains(name)) {
      return Refuse(absl::StrCat("has a struct with two fields '", name, "'"));
    }
    ASSIGN_OR_RETURN(object[name], JsonOf(*array.field(i), row, depth));
  }
  return object;
}

JsonValue MapJson(const arrow::MapArray& array, int64_t row, int depth) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  const int64_t begin = array.value_offset(row);
  for (int64_t i = begin; i < begin + array.value_length(row); ++i) {
    ASSIGN_OR_RETURN(const auto key, CellText(*array.keys(), i));
    if (!key.has_value() || !IsUtf8(*key) || object.contains(*key)) {
      return Refuse("has a map with a key that is no text, or occurs twice");
    }
    ASSIGN_OR_RETURN(object[*key], JsonOf(*array.items(), i, depth));
  }
  return object;
}

template <typename Array>
nlohmann::ordered_json NumberOf(const arrow::Array& array, int64_t row) {
  return ValueOf<Array>(array, row);
}

JsonValue FloatJson(double value) {
  RETURN_IF_ERROR(FloatingPoint(value).status());
  return nlohmann::ordered_json(value);
}

// Returns the value of a cell whose text is its value, too.
JsonValue StringJson(const arrow::Array& array, int64_t row) {
  ASSIGN_OR_RETURN(auto text, CellText(array, row));
  if (!text.has_value()) return nullptr;
  if (!IsUtf8(*text)) return Refuse("is not UTF-8");
  return nlohmann::ordered_json(*std::move(text));
}

JsonValue ExtensionJson(const arrow::ExtensionArray& array, int64_t row) {
  const auto& type = static_cast<const arrow::ExtensionType&>(*array.type());
  const std::string name = type.extension_name();
  if (name == "arrow.json") {
    ASSIGN_OR_RETURN(const auto cell, CellText(*array.storage(), row));
    if (!cell.has_value()) return nullptr;
    auto value = ParseOrderedJson(*cell, "");
    if (value.ok()) return value;
    return Refuse(absl::StrCat("holds text that is not JSON",
                               std::string(value.status().message())));
  }
  if (name == "arrow.bool8" &&
      array.storage()->type_id() == arrow::Type::INT8) {
    return nlohmann::ordered_json(
        ValueOf<arrow::Int8Array>(*array.storage(), row) != 0);
  }
  return StringJson(array, row);
}

JsonValue JsonOf(const arrow::Array& array, int64_t row, int depth) {
  if (array.IsNull(row)) return nullptr;
  if (depth == kMaxCellDepth) return Refuse("is nested too deeply");
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return ListJson<arrow::ListArray>(array, row, depth + 1);
    case arrow::Type::LARGE_LIST:
      return ListJson<arrow::LargeListArray>(array, row, depth + 1);
    case arrow::Type::LIST_VIEW:
      return ListJson<arrow::ListViewArray>(array, row, depth + 1);
    case arrow::Type::LARGE_LIST_VIEW:
      return ListJson<arrow::LargeListViewArray>(array, row, depth + 1);
    case arrow::Type::FIXED_SIZE_LIST:
      return ListJson<arrow::FixedSizeListArray>(array, row, depth + 1);
    case arrow::Type::STRUCT:
      return StructJson(
          static_cast<const arrow::StructArray&>(array), row, depth + 1);
    case arrow::Type::MAP:
      return MapJson(
          static_cast<const arrow::MapArray&>(array), row, depth + 1);
    case arrow::Type::BOOL:
      return NumberOf<arrow::BooleanArray>(array, row);
    case arrow::Type::INT8:
      return NumberOf<arrow::Int8Array>(array, row);
    case arrow::Type::INT16:
      return NumberOf<arrow::Int16Array>(array, row);
    case arrow::Type::INT32:
      return NumberOf<arrow::Int32Array>(array, row);
    case arrow::Type::INT64:
      return NumberOf<arrow::Int64Array>(array, row);
    case arrow::Type::UINT8:
      return NumberOf<arrow::UInt8Array>(array, row);
    case arrow::Type::UINT16:
      return NumberOf<arrow::UInt16Array>(array, row);
    case arrow::Type::UINT32:
      return NumberOf<arrow::UInt32Array>(array, row);
    case arrow::Type::UINT64:
      return NumberOf<arrow::UInt64Array>(array, row);
    case arrow::Type::HALF_FLOAT:
      return FloatJson(arrow::util::Float16::FromBits(
                           ValueOf<arrow::HalfFloatArray>(array, row))
                           .ToDouble());
    case arrow::Type::FLOAT:
      return FloatJson(ValueOf<arrow::FloatArray>(array, row));
    case arrow::Type::DOUBLE:
      return FloatJson(ValueOf<arrow::DoubleArray>(array, row));
    case arrow::Type::EXTENSION:
      return ExtensionJson(static_cast<const arrow::ExtensionArray&>(array),
                           row);
    default:
      return StringJson(array, row);
  }
}

}  // namespace

JsonValue CellJson(const arrow::Array& array, int64_t row) {
  return JsonOf(array, row, 0);
}

}  // namespace dapd
