#include "services/cli/open_rollout_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_credentials.h"
#include "services/cli/dial_service.h"

namespace dapd {

void WorkerOptions::AddFlags(Command& command) {
  const CommandOption workers =
      command
          .AddOption("--workers",
                     addresses,
                     "host:port,... of rollout workers that answer instead of "
                     "this process; no run may be using them")
          .NotEmpty();
  command
      .AddOption(
          "--answer-timeout",
          answer_timeout_seconds,
          "seconds that a worker has for an answer; 0: depending on its length")
      .Range(0.0, 1e9)
      .Needs(workers);
  command
      .AddOption("--peer-timeout",
                 peer_timeout_seconds,
                 "seconds without any usable worker before it gives up")
      .Range(0.001, 1e9)
      .Needs(workers);
  AddSecurityOption(command, &security).Needs(workers);
}

absl::StatusOr<std::unique_ptr<RolloutClient>> OpenRolloutClient(
    const WorkerOptions& options,
    const ExpectedWorker& expected,
    int64_t max_new_tokens) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Security> security,
                   LoadCommandSecurity(options.security));
  WorkerClientOptions client;
  client.addresses =
      absl::StrSplit(options.addresses, ',', absl::SkipWhitespace());
  if (client.addresses.empty()) {
    return WithExitCode(absl::InvalidArgumentError(
                            absl::StrCat("--workers '",
                                         options.addresses,
                                         "' names no worker; give host:port")),
                        ExitCode::kUsage);
  }
  client.expected = expected;
  client.credentials = std::make_shared<const RpcCredentials>(security);
  client.task_timeout = options.answer_timeout_seconds > 0
                            ? absl::Seconds(options.answer_timeout_seconds)
                            : AnswerTimeout(absl::Minutes(10), max_new_tokens);
  client.peer_timeout = absl::Seconds(options.peer_timeout_seconds);
  auto started = RolloutClient::Start(std::move(client));
  if (!started.ok()) {
    return WithExitCode(started.status(), ExitCode::kConfig);
  }
  return started;
}

}  // namespace dapd
