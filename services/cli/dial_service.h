// Channels from commands to services, which may ask for credentials.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"

#include "common/base/command_line.h"
#include "common/security/role.h"

namespace dapd {

// Adds --set key=value for the keys of the section `security`.
CommandOption AddSecurityOption(Command& command,
                                std::vector<std::string>* overrides);

// Returns a channel to a process with one of the roles `peers`, with the
// certificate and token that the environment (DAPD_SECURITY__CERTIFICATE=...)
// and `overrides` name. Errors have the exit code kConfig.
absl::StatusOr<std::shared_ptr<grpc::Channel>> DialService(
    const std::string& address,
    const std::vector<std::string>& overrides,
    RoleSet peers);

}  // namespace dapd
