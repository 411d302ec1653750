// dapd status: shows a trainer's state on one screen.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/rpc/pool/address_resolver.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/status_json.h"
#include "dapd/v1/trainer.grpc.pb.h"
#include "services/cli/command.h"
#include "services/cli/dial_service.h"
#include "services/cli/machine_runs.h"
#include "services/cli/status_text.h"

namespace dapd {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(5);

struct StatusOptions {
  std::string address;
  std::vector<std::string> overrides;
  bool json = false;
};

// Returns the address of the only run on this machine; an error lists several.
absl::StatusOr<std::string> FindAddress() {
  std::vector<std::string> lines;
  std::string address;
  for (const MachineRun& run : RunsOfThisMachine()) {
    lines.push_back(
        absl::StrCat("\n  ",
                     run.address.empty() ? "(where its log says)" : run.address,
                     "  ",
                     Printable(run.folder)));
    address = run.address;
  }
  if (lines.size() == 1 && !address.empty()) return address;
  return WithExitCode(
      absl::NotFoundError(
          lines.empty()
              ? "no run of this user is under way on this machine; name the "
                "address of its trainer, which the run's log says and "
                "trainer.listen sets"
              : absl::StrCat("name the run's address; under way on this "
                             "machine:",
                             absl::StrJoin(lines, ""))),
      ExitCode::kUsage);
}

absl::Status ShowStatus(StatusOptions options) {
  if (options.address.empty()) {
    ASSIGN_OR_RETURN(options.address, FindAddress());
  }
  const absl::Status address = ParseHostPort(options.address).status();
  if (!address.ok()) return WithExitCode(address, ExitCode::kUsage);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
  v1::GetStatusResponse response;
  ASSIGN_OR_RETURN(
      const auto channel,
      DialService(options.address, options.overrides, {Role::kTrainer}));
  const auto stub = v1::TrainerService::NewStub(channel);
  const absl::Status status =
      FromGrpcStatus(stub->GetStatus(&context, {}, &response));
  if (!status.ok()) {
    return WithExitCode(
        absl::Status(status.code(),
                     absl::StrCat("no trainer answers at ",
                                  options.address,
                                  ": ",
                                  std::string(status.message()),
                                  "; the address is the trainer's "
                                  "trainer.listen")),
        ExitCode::kPeerUnavailable);
  }
  std::cout << (options.json ? StatusJson(response).dump(2) + "\n"
                             : StatusText(response));
  return absl::OkStatus();
}

}  // namespace

void AddStatusCommand(Command& app) {
  auto options = std::make_shared<StatusOptions>();
  Command command =
      app.AddSubcommand("status", "Shows a trainer's state on one screen");
  command.AddOption("address",
                    options->address,
                    "host:port of the trainer (default: the trainer of the "
                    "only run on this machine)");
  AddSecurityOption(command, &options->overrides);
  command.AddFlag("--json", options->json, "as JSON, for programs");
  command.Does([options] { return ShowStatus(*options); });
}

}  // namespace dapd
