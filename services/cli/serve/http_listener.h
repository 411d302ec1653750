// HttpListener: cpp-httplib's server on connections of our own.
//
// The library parses requests, finds their handlers and writes answers. This
// class accepts connections, in plain text or with TLS, and limits their number
// and their time, since the library has no limit for a whole request, keeps
// connections without a bound, and does not tell a handler that its client has
// left. Each connection is closed after its answer.
#pragma once

#include <httplib.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/bounded_queue.h"
#include "common/metrics/http_transport.h"
#include "common/security/tls_server.h"

namespace dapd {

struct ListenerOptions {
  std::string listen;  // "host:port"; port 0: a free one
  std::optional<TlsServer> tls;
  // Threads; each serves one connection. Further connections wait in the
  // system's queue.
  int connections = 80;
  // The longest body; a longer one is answered with 413, or the connection is
  // closed if its length was not announced.
  size_t max_body_bytes = 4 << 20;
  absl::Duration read_time = absl::Seconds(30);   // for the whole request
  absl::Duration write_time = absl::Seconds(30);  // for each part of an answer
};

class HttpListener final : private httplib::Server {
 public:
  // Takes the address, but no connection yet. Returns OpenListenSocket's errors
  // with exit code kConfig.
  static absl::StatusOr<std::unique_ptr<HttpListener>> Open(
      ListenerOptions options);
  // Stop().
  ~HttpListener() override;

  // The handlers are set before Start. cpp-httplib's documentation describes
  // them.
  using httplib::Server::Get;
  using httplib::Server::Post;
  using httplib::Server::set_default_headers;
  using httplib::Server::set_error_handler;
  using httplib::Server::set_exception_handler;
  using httplib::Server::set_pre_routing_handler;

  void Start();
  // Accepts no more connections and waits until all answers are written.
  void Stop();

  int port() const { return port_; }

  // In a handler: returns whether its client has closed the connection.
  static bool ClientHasLeft();

 private:
  HttpListener(ListenerOptions options, int socket, int port);
  void Accept();
  void Serve(std::unique_ptr<HttpTransport> transport);

  ListenerOptions options_;
  const int socket_;
  const int port_;
  std::atomic<bool> stopping_ = false;
  BoundedQueue<std::unique_ptr<HttpTransport>> accepted_{1};
  std::thread acceptor_;
  std::vector<std::thread> servers_;
};

}  // namespace dapd
