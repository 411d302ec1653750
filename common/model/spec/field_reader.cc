#include "common/model/spec/field_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json_integer.h"

namespace dapd {

using nlohmann::json;

FieldReader::FieldReader(const json& object, std::string where)
    : object_(object), where_(std::move(where)) {}

bool FieldReader::Has(const char* key) const {
  return object_.contains(key) && !object_[key].is_null();
}

int64_t FieldReader::Integer(const char* key,
                             std::optional<int64_t> fallback,
                             int64_t max) {
  if (!Has(key)) {
    if (!fallback.has_value()) Fail(key, "is missing");
    return fallback.value_or(1);
  }
  const auto number = JsonInteger(object_[key], 1, max);
  if (!number.ok()) Fail(key, std::string(number.status().message()));
  return number.value_or(1);
}

double FieldReader::Positive(const char* key, std::optional<double> fallback) {
  if (!Has(key)) {
    if (!fallback.has_value()) Fail(key, "is missing");
    return fallback.value_or(1.0);
  }
  const json& value = object_[key];
  if (!value.is_number() || !(value.get<double>() > 0.0)) {
    Fail(key, absl::StrCat("is ", value.dump(), ", not a positive number"));
    return 1.0;
  }
  return value.get<double>();
}

double FieldReader::PositiveOrUnset(const char* key, double fallback) {
  const bool is_zero =
      Has(key) && object_[key].is_number() && object_[key].get<double>() == 0.0;
  return is_zero ? fallback : Positive(key, fallback);
}

bool FieldReader::Boolean(const char* key, bool fallback) {
  if (!Has(key)) return fallback;
  if (!object_[key].is_boolean()) {
    Fail(key, absl::StrCat("is ", object_[key].dump(), ", not true or false"));
    return fallback;
  }
  return object_[key].get<bool>();
}

void FieldReader::Fail(const std::string& key, const std::string& problem) {
  if (status_.ok()) {
    status_ = DataError(absl::StrCat(where_, ": ", key, " ", problem));
  }
}

void FieldReader::Take(const absl::Status& part) {
  if (status_.ok() && !part.ok()) {
    status_ = DataError(absl::StrCat(where_, ": ", part.message()));
  }
}

}  // namespace dapd
