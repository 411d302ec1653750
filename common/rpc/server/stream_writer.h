// The writing half of a bidirectional handler, on its own thread: an exception
// on either side ends the call and not the process.
#pragma once

#include <exception>
#include <functional>
#include <thread>

namespace dapd {

class StreamWriter {
 public:
  // Runs `body` at once. `stop` makes body and handler return soon: it is
  // called if body throws, or if the handler leaves without Join.
  StreamWriter(std::function<void()> body, std::function<void()> stop);
  // Waits for body.
  ~StreamWriter();

  // Waits for body; throws the exception of body, if there was one.
  void Join();

 private:
  const std::function<void()> stop_;
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace dapd
