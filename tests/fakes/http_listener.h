// Implements a server for one test: it accepts one connection after another,
// and answers as the test says or not at all.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/mutex.h"
#include "tests/fakes/loopback_socket.h"

namespace dapd {

class HttpListener {
 public:
  // `answer` gets the number of earlier requests and returns the bytes to send.
  // If they are empty, nothing is sent and the connection stays open.
  explicit HttpListener(std::function<std::string(size_t before)> answer)
      : answer_(std::move(answer)),
        listener_(ListenOnLoopback(/*backlog=*/8, &port_)) {
    thread_ = std::thread([this] { Serve(); });
  }
  ~HttpListener() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    for (const int held : held_) ::close(held);
  }
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_); }
  // Returns heads and bodies of the requests, in order.
  std::vector<std::string> requests() {
    MutexLock lock(&mutex_);
    return requests_;
  }

 private:
  static std::string ReadRequest(int connection) {
    std::string text;
    char block[4096];
    while (true) {
      const size_t end = text.find("\r\n\r\n");
      if (end != std::string::npos) {
        const std::string name = "Content-Length: ";
        const size_t at = text.find(name);
        size_t length = 0;
        if (at != std::string::npos) {
          length = std::stoul(text.substr(at + name.size()));
        }
        if (text.size() >= end + 4 + length) return text;
      }
      const ssize_t count = ::read(connection, block, sizeof(block));
      if (count <= 0) return text;
      text.append(block, static_cast<size_t>(count));
    }
  }

  void Serve() {
    while (true) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      const std::string request = ReadRequest(connection);
      size_t before = 0;
      {
        MutexLock lock(&mutex_);
        before = requests_.size();
        requests_.push_back(request);
      }
      const std::string answer = answer_(before);
      if (answer.empty()) {
        held_.push_back(connection);
        continue;
      }
      ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      ::close(connection);
    }
  }

  const std::function<std::string(size_t)> answer_;
  int port_ = 0;  // declared before the listener, which sets it
  const int listener_;
  Mutex mutex_;
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> held_;  // used by the thread, later by the destructor
  std::thread thread_;
};

inline std::string HttpAnswer(int status) {
  return absl::StrCat("HTTP/1.1 ",
                      status,
                      " Said\r\nContent-Length: 2\r\nLocation: "
                      "http://127.0.0.1:1/\r\nConnection: close\r\n\r\nok");
}

}  // namespace dapd
