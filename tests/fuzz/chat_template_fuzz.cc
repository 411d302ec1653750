// Input: a chat template.
// A template that parses runs within its limits, twice with the same result.
#include "common/base/check.h"
#include "common/tokenizer/jinja/interpreter.h"
#include "common/tokenizer/jinja/parser.h"
#include "tests/fuzz/input.h"

namespace dapd::jinja {
namespace {

constexpr Limits kLimits = {.max_steps = 20'000,
                            .max_output_bytes = size_t{1} << 20};

Value Message(const char* role, const char* content) {
  return Value(
      Dict{{Value(std::string("role")), Value(std::string(role))},
           {Value(std::string("content")), Value(std::string(content))}});
}

Names Variables() {
  return {{"messages",
           Value(List{Message("system", "Be brief."),
                      Message("user", "1 + 1? \xC3\xA9\xF0\x9F\x98\x80"),
                      Message("assistant", "<think>\nhm\n</think>\n\n2")})},
          {"bos_token", Value(std::string("<s>"))},
          {"tools", Value::MakeNone()},
          {"add_generation_prompt", Value(true)},
          {"enable_thinking", Value(false)}};
}

void Render(const std::string& source) {
  const auto block = Parse(source);
  if (!block.ok()) return;
  const auto text = Run(*block, Variables(), kLimits);
  const auto again = Run(*block, Variables(), kLimits);
  Check(text.status() == again.status(), "a template ends alike each time");
  if (!text.ok()) return;
  Check(*text == *again, "a template gives the same text each time");
  Check(text->size() <= kLimits.max_output_bytes, "the output is limited");
}

}  // namespace
}  // namespace dapd::jinja

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::jinja::Render(std::string(dapd::AsText(data, size)));
  return 0;
}
