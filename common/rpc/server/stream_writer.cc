#include "common/rpc/server/stream_writer.h"

#include <utility>

namespace dapd {

StreamWriter::StreamWriter(std::function<void()> body,
                           std::function<void()> stop)
    : stop_(std::move(stop)), thread_([this, body = std::move(body)] {
        try {
          body();
        } catch (...) {
          failure_ = std::current_exception();
          stop_();
        }
      }) {}

StreamWriter::~StreamWriter() {
  if (thread_.joinable()) stop_();
}

void StreamWriter::Join() {
  thread_.join();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

}  // namespace dapd
