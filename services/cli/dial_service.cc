#include "services/cli/dial_service.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/rpc/client/channel.h"
#include "common/rpc/rpc_credentials.h"

namespace dapd {

CommandOption AddSecurityOption(Command& command,
                                std::vector<std::string>* overrides) {
  return command.AddOption("--set",
                           *overrides,
                           "security.<key>=value, overrides the environment "
                           "(DAPD_SECURITY__<KEY>)");
}

absl::StatusOr<std::shared_ptr<Security>> LoadCommandSecurity(
    const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const SecuritySection section, LoadSecurity(overrides));
  return Security::Load(section, {});
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> DialService(
    const std::string& address,
    const std::vector<std::string>& overrides,
    RoleSet peers) {
  // Keeps warnings of the configuration out of the command's output.
  SetMinLogSeverity(Severity::kError);
  ASSIGN_OR_RETURN(const std::shared_ptr<Security> security,
                   LoadCommandSecurity(overrides));
  return OpenChannel(address, RpcCredentials(security), peers);
}

}  // namespace dapd
