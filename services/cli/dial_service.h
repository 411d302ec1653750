// Channels from commands to services, which may ask for credentials.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"

#include "common/base/command_line.h"
#include "common/security/role.h"
#include "common/security/security.h"

namespace dapd {

// Adds --set key=value for the keys of the section `security`.
CommandOption AddSecurityOption(Command& command,
                                std::vector<std::string>* overrides);

// Loads the certificate and the token that the environment
// (DAPD_SECURITY__CERTIFICATE=...) and `overrides` name, for a command that
// calls services. Errors have the exit code kConfig.
absl::StatusOr<std::shared_ptr<Security>> LoadCommandSecurity(
    const std::vector<std::string>& overrides);

// Returns a channel to a process with one of the roles `peers`, with what
// LoadCommandSecurity loads, whose errors it returns.
absl::StatusOr<std::shared_ptr<grpc::Channel>> DialService(
    const std::string& address,
    const std::vector<std::string>& overrides,
    RoleSet peers);

}  // namespace dapd
