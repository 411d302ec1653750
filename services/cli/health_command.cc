// dapd health: asks whether a service is serving; for probes of containers and
// load balancers without a shell.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/rpc/client/health_client.h"
#include "common/rpc/pool/address_resolver.h"
#include "services/cli/command.h"
#include "services/cli/dial_service.h"

namespace dapd {
namespace {

struct HealthOptions {
  std::string address;
  std::string service;
  std::vector<std::string> overrides;
  double timeout_seconds = 5;
};

absl::Status ShowHealth(const HealthOptions& options) {
  const absl::Status address = ParseHostPort(options.address).status();
  if (!address.ok()) return WithExitCode(address, ExitCode::kUsage);
  ASSIGN_OR_RETURN(
      const auto channel,
      DialService(options.address,
                  options.overrides,
                  {Role::kRollout, Role::kTeacher, Role::kTrainer}));
  const absl::Status health = CheckHealth(
      channel, options.service, absl::Seconds(options.timeout_seconds));
  if (!health.ok()) {
    return WithExitCode(
        absl::Status(health.code(),
                     absl::StrCat("the service at ",
                                  options.address,
                                  " is not ready: ",
                                  std::string(health.message()),
                                  "; it serves once it has loaded its model, "
                                  "and its log says what it is waiting for")),
        ExitCode::kPeerUnavailable);
  }
  std::cout << "SERVING\n";
  return absl::OkStatus();
}

}  // namespace

void AddHealthCommand(Command& app) {
  auto options = std::make_shared<HealthOptions>();
  Command command =
      app.AddSubcommand("health", "Asks a service whether it is serving");
  command.AddOption("address", options->address, "host:port of the service")
      .FromEnvironment("DAPD_HEALTH_ADDRESS")
      .Required();
  command
      .AddOption("--service",
                 options->service,
                 "one of its services, such as dapd.v1.TrainerService, "
                 "which may have to wait for others; not given: whether it "
                 "has loaded its model")
      .NotEmpty();
  AddSecurityOption(command, &options->overrides);
  command.AddOption("--timeout", options->timeout_seconds, "seconds to wait")
      .Positive()
      .ShowDefault();
  command.Does([options] { return ShowHealth(*options); });
}

}  // namespace dapd
