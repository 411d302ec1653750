#include "common/data/json_text.h"

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/json_value.h"
#include "common/tokenizer/jinja/python_repr.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd {

absl::StatusOr<std::string> JsonText(const nlohmann::json& value,
                                     absl::string_view what) {
  if (value.is_string()) return value.get<std::string>();
  // Integers that fit into 64 bits are not stored as floating-point numbers.
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (number >= 0x1p64 || number <= -0x1p63) {
      return DataError(absl::StrCat(what,
                                    " holds a number past 64 bits, of which "
                                    "only ",
                                    value.dump(),
                                    " could be read; put it in quotes"));
    }
  }
  return value.dump();
}

absl::StatusOr<std::string> PythonJson(const nlohmann::ordered_json& value) {
  ASSIGN_OR_RETURN(const jinja::Value converted, jinja::FromJson(value));
  return jinja::ToJson(converted, {});
}

}  // namespace dapd
