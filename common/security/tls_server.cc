#include "common/security/tls_server.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/security/secret_file.h"

namespace dapd {
namespace {

constexpr absl::Duration kCertificateLookInterval = absl::Seconds(1);

absl::Status TlsError(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot use ", path, " for TLS: ", TakeOpenSslError()));
}

std::string StampOf(const IdentityPaths& paths) {
  return absl::StrCat(FileStamp(paths.certificate),
                      " ",
                      FileStamp(paths.private_key),
                      " ",
                      FileStamp(paths.ca));
}

}  // namespace

ssize_t TlsStream::Result(int count) {
  if (count > 0) return count;
  const int error = SSL_get_error(ssl_.get(), count);
  ERR_clear_error();
  waits_to_write_ = error == SSL_ERROR_WANT_WRITE;
  if (waits_to_write_ || error == SSL_ERROR_WANT_READ) return kMustWait;
  // OpenSSL forbids SSL_shutdown after these errors.
  is_broken_ = error == SSL_ERROR_SSL || error == SSL_ERROR_SYSCALL;
  return 0;
}

ssize_t TlsStream::Read(char* bytes, size_t size) {
  return Result(SSL_read(ssl_.get(), bytes, static_cast<int>(size)));
}

ssize_t TlsStream::Write(const char* bytes, size_t size) {
  constexpr size_t kRecordBytes = 16384;
  return Result(SSL_write(
      ssl_.get(), bytes, static_cast<int>(std::min(size, kRecordBytes))));
}

void TlsStream::EndWriting() {
  if (is_broken_) return;
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

RoleSet TlsStream::PeerRoles() const {
  const X509Pointer certificate(SSL_get1_peer_certificate(ssl_.get()));
  if (certificate == nullptr ||
      SSL_get_verify_result(ssl_.get()) != X509_V_OK) {
    return {};
  }
  return DescribeCertificate(certificate.get()).roles;
}

absl::StatusOr<TlsServer> TlsServer::Create(const IdentityPaths& paths) {
  TlsServer server(paths);
  server.stamp_ = StampOf(paths);
  server.looked_ = absl::Now();
  RETURN_IF_ERROR(server.Load());
  return server;
}

absl::Status TlsServer::Load() {
  RETURN_IF_ERROR(CheckIdentity(paths_, TlsEnd::kServer, absl::Now()));
  SslContextPointer context(SSL_CTX_new(TLS_server_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE |
                       SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                       SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_use_certificate_chain_file(context.get(),
                                         paths_.certificate.c_str()) != 1) {
    return TlsError(paths_.certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(
          context.get(), paths_.private_key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return TlsError(paths_.private_key);
  }
  if (!paths_.ca.empty()) {
    if (SSL_CTX_load_verify_file(context.get(), paths_.ca.c_str()) != 1) {
      return TlsError(paths_.ca);
    }
    SSL_CTX_set_client_CA_list(context.get(),
                               SSL_load_client_CA_file(paths_.ca.c_str()));
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  }
  context_ = std::move(context);
  return absl::OkStatus();
}

void TlsServer::LoadIfChanged() {
  const absl::Time now = absl::Now();
  if (now >= looked_ && now - looked_ < kCertificateLookInterval) return;
  looked_ = now;
  std::string stamp = StampOf(paths_);
  if (stamp == stamp_) return;
  const absl::Status loaded = Load();
  if (loaded.ok()) {
    stamp_ = std::move(stamp);
  } else if (stamp != logged_stamp_) {
    logged_stamp_ = std::move(stamp);
    LogWarning(absl::StrCat(std::string(loaded.message()),
                            "; the previous certificate stays in effect"));
  }
}

std::unique_ptr<TlsStream> TlsServer::Accept(int socket) {
  LoadIfChanged();
  SslPointer ssl(SSL_new(context_.get()));
  SSL_set_fd(ssl.get(), socket);
  SSL_set_accept_state(ssl.get());
  return std::unique_ptr<TlsStream>(new TlsStream(std::move(ssl)));
}

}  // namespace dapd
