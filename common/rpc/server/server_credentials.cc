#include "common/rpc/server/server_credentials.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/base/check.h"
#include "common/rpc/status_conversion.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpc/slice.h"

namespace dapd {
namespace {

absl::string_view ToView(const grpc_slice& slice) {
  return absl::string_view(
      reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
      GRPC_SLICE_LENGTH(slice));
}

std::vector<std::string> PeerUris(const grpc_auth_context* context) {
  std::vector<std::string> uris;
  grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(
      context, GRPC_PEER_URI_PROPERTY_NAME);
  while (const grpc_auth_property* property =
             grpc_auth_property_iterator_next(&it)) {
    uris.emplace_back(property->value, property->value_length);
  }
  return uris;
}

// gRPC's plug-in interface in C, since the C++ interface refuses plaintext
// servers.
void Process(void* state,
             grpc_auth_context* context,
             const grpc_metadata* metadata,
             size_t count,
             grpc_process_auth_metadata_done_cb done,
             void* user_data) {
  const auto& authorizer =
      *static_cast<std::shared_ptr<CallAuthorizer>*>(state);
  CallFacts facts;
  facts.certificate_uris = PeerUris(context);
  // Handlers need no tokens.
  std::vector<grpc_metadata> consumed;
  for (size_t i = 0; i < count; ++i) {
    const absl::string_view key = ToView(metadata[i].key);
    if (key == ":path") facts.method = ToView(metadata[i].value);
    if (key != "authorization") continue;
    facts.authorization.push_back(ToView(metadata[i].value));
    consumed.push_back(metadata[i]);
  }
  const absl::Status status = authorizer->Authorize(facts);
  done(user_data,
       consumed.data(),
       consumed.size(),
       nullptr,
       0,
       static_cast<grpc_status_code>(status.code()),
       status.ok() ? nullptr : WireMessage(status).c_str());
}

void DestroyState(void* state) {
  delete static_cast<std::shared_ptr<CallAuthorizer>*>(state);
}

class AuthorizingCredentials final : public grpc::ServerCredentials {
 public:
  // Takes ownership of `credentials`.
  AuthorizingCredentials(grpc_server_credentials* credentials,
                         std::shared_ptr<CallAuthorizer> authorizer)
      : credentials_(credentials) {
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_,
        {.process = Process,
         .destroy = DestroyState,
         .state = new std::shared_ptr<CallAuthorizer>(std::move(authorizer))});
  }
  ~AuthorizingCredentials() override {
    grpc_server_credentials_release(credentials_);
  }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    Check(false, "a server has one authorizer, given when it is made");
  }

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> PlaintextServerCredentials(
    std::shared_ptr<CallAuthorizer> authorizer) {
  return std::make_shared<AuthorizingCredentials>(
      grpc_insecure_server_credentials_create(), std::move(authorizer));
}

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(
    const grpc::experimental::TlsServerCredentialsOptions& options,
    std::shared_ptr<CallAuthorizer> authorizer) {
  return std::make_shared<AuthorizingCredentials>(
      grpc_tls_server_credentials_create(options.c_credentials_options()),
      std::move(authorizer));
}

}  // namespace dapd
