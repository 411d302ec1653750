// A GET-only HTTP/1.1 responder for metrics and health: small, strict, bounded.
//
// One thread, one connection after another, closed after each answer. A request
// line and headers of at most 8 KiB must arrive within 2 s. GET and HEAD only
// (405), known paths only (404), no bodies.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace dapd {

struct HttpPage {
  std::string content_type = "text/plain; charset=utf-8";
  std::function<std::string()> body;  // called from the responder's thread
};

class HttpResponder {
 public:
  // `listen`: "host:port"; port 0 takes a free one. UNAVAILABLE if the address
  // is in use, with its text and what to do.
  static absl::StatusOr<std::unique_ptr<HttpResponder>> Start(
      const std::string& listen, std::map<std::string, HttpPage> pages);
  ~HttpResponder();
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  int port() const { return port_; }

 private:
  HttpResponder(int listener, int port, std::map<std::string, HttpPage> pages);
  void Serve();
  void Answer(int connection);
  std::string Respond(const std::string& request) const;

  const int listener_;
  const int port_;
  const std::map<std::string, HttpPage> pages_;
  std::atomic<bool> stopping_ = false;
  std::jthread thread_;
};

}  // namespace dapd
