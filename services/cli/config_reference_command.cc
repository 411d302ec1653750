// dapd config-reference: docs/configuration.md on stdout.

#include <cstdio>

#include "common/config/load_config.h"
#include "services/cli/command.h"

namespace dapd {

void AddConfigReferenceCommand(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "config-reference", "Every configuration key, as Markdown");
  command->callback([action] {
    *action = [] {
      std::fputs(ConfigReference().c_str(), stdout);
      return absl::OkStatus();
    };
  });
}

}  // namespace dapd
