// HttpResponder is a small, strict and bounded HTTP/1.1 server for metrics,
// health and status. It answers only GET and HEAD (http_answer.h).
//
// One thread serves up to 64 connections, each of which is closed after its
// answer; when a further connection arrives, the oldest is closed. The request
// line and headers, at most 8 KiB, must arrive within 2 s, and the client must
// take the answer within 10 s.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "common/metrics/http_answer.h"
#include "common/security/security.h"
#include "common/security/tls_server.h"

namespace dapd {

struct HttpOptions {
  std::string listen;  // "host:port"; port 0 chooses a free port
  std::vector<std::string> allowed_hosts;  // see host_check.h
  // Decides between plain text and TLS (Security::ForHttp). With TLS every page
  // that is not public needs a certificate or a bearer token of a viewer,
  // trainer or admin. If null, only loopback is allowed.
  std::shared_ptr<const Security> security;
};

class HttpResponder {
 public:
  // Returns UNAVAILABLE, with the address and what to do, if the address is in
  // use; also returns errors of Security::ForHttp and TlsServer::Create.
  static absl::StatusOr<std::unique_ptr<HttpResponder>> Start(
      HttpOptions options, std::map<std::string, HttpPage> pages);
  ~HttpResponder();
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  int port() const { return port_; }

 private:
  HttpResponder(int listener,
                int port,
                std::optional<TlsServer> tls,
                HttpOptions options,
                std::map<std::string, HttpPage> pages);
  void Serve();
  std::string Answer(const std::string& request,
                     RoleSet certificate_roles) const;

  const int listener_;
  const int port_;
  std::optional<TlsServer> tls_;  // only thread_ uses it
  const HttpOptions options_;
  const std::map<std::string, HttpPage> pages_;
  std::atomic<bool> stopping_ = false;
  std::jthread thread_;
};

}  // namespace dapd
