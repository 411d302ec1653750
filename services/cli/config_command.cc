// dapd config: the configuration with all its overrides.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/config/config_text.h"
#include "common/config/load_config.h"
#include "common/config/shipped_configs.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

struct ConfigOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool json = false;
};

absl::Status PrintConfig(const ConfigOptions& options) {
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  const std::string text = options.json
                               ? absl::StrCat(ConfigJson(loaded).dump(2), "\n")
                               : DumpConfig(loaded);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddConfigCommand(Command& app) {
  auto options = std::make_shared<ConfigOptions>();
  Command command = app.AddSubcommand(
      "config",
      "Prints every key of a configuration, with where its value is from");
  AddConfigArgument(command, options->config);
  command
      .AddOption("--set", options->overrides, "key=value, overrides the file")
      .TakeAll();
  command.AddFlag("--json", options->json, "as JSON, for programs");
  command.Does([options] { return PrintConfig(*options); });
}

}  // namespace dapd
