// dapd config-reference: docs/configuration.md on stdout.

#include <cstdio>

#include "common/config/config_text.h"
#include "services/cli/command.h"

namespace dapd {

void AddConfigReferenceCommand(Command& app) {
  app.AddSubcommand("config-reference",
                    "Prints every configuration key, as Markdown")
      .Does([] {
        std::fputs(ConfigReference().c_str(), stdout);
        return absl::OkStatus();
      });
}

}  // namespace dapd
