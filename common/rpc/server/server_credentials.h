// gRPC server credentials that ask a CallAuthorizer about every call. They work
// below all services, so no service can forget to ask.
#pragma once

#include <memory>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_credentials_options.h"

#include "common/rpc/server/call_authorizer.h"

namespace dapd {

std::shared_ptr<grpc::ServerCredentials> PlaintextServerCredentials(
    std::shared_ptr<CallAuthorizer> authorizer);

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(
    const grpc::experimental::TlsServerCredentialsOptions& options,
    std::shared_ptr<CallAuthorizer> authorizer);

}  // namespace dapd
