// Input: a JSON text.
// An accepted text is at most 64 levels deep and stays the same when it is
// written and read.
#include <algorithm>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

int Depth(const nlohmann::json& value) {
  int deepest = 0;
  for (const nlohmann::json& child : value) {
    if (child.is_structured()) deepest = std::max(deepest, Depth(child));
  }
  return deepest + 1;
}

void Run(absl::string_view text) {
  const auto value = ParseJson(text, "input");
  if (!value.ok()) return;
  Check(text.find('\0') == text.npos, "a text does not end at a zero byte");
  Check(!value->is_structured() || Depth(*value) <= 64, "depth is limited");
  const auto again = ParseJson(value->dump(), "written");
  Check(again.ok() && *again == *value, "a value survives");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
