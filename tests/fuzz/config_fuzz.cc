// Input: a configuration in YAML, a zero byte, one override (key=value).
// An accepted configuration stays the same when it is dumped and read again.
#include <vector>

#include "common/base/check.h"
#include "common/base/exit_code.h"
#include "common/base/utf8.h"
#include "common/config/config_keys.h"
#include "common/config/config_text.h"
#include "common/config/load_config.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

std::vector<std::string> Values(Config config) {
  std::vector<std::string> values;
  for (const ConfigKey& key : ConfigKeys(config)) {
    values.push_back(FormatValue(key));
  }
  return values;
}

void Run(InputReader input) {
  static const ScratchFolder folder;
  const std::string path = folder.Write("config.yaml", input.Text());
  const std::string text = input.Rest();
  std::vector<std::string> overrides;
  if (!text.empty()) overrides.push_back(text);
  const auto loaded = LoadConfig(path, overrides);
  if (!loaded.ok()) {
    Check(ExitCodeOf(loaded.status()) == ExitCode::kConfig,
          "a bad file is the configuration's fault");
    return;
  }
  for (const std::string& value : Values(loaded->config)) {
    Check(IsUtf8(value), "accepted values are UTF-8");
  }
  const std::string dumped = folder.Write("dump.yaml", DumpConfig(*loaded));
  const auto again = LoadConfig(dumped, {});
  Check(again.ok(), "a dumped configuration is accepted");
  Check(Values(again->config) == Values(loaded->config), "values survive");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size));
  return 0;
}
