#include "common/metrics/http_connection.h"

#include <utility>

namespace dapd {
namespace {

constexpr size_t kMaxRequestBytes = 8192;
constexpr size_t kMaxDrainedBytes = 65536;
constexpr std::chrono::seconds kRequestTimeout(2);
constexpr std::chrono::seconds kAnswerTimeout(10);
constexpr std::chrono::seconds kDrainTimeout(1);
// The size of a TLS record: poll(2) does not see bytes of a record that were
// not read.
constexpr size_t kBlockBytes = 16384;

bool MustWait(ssize_t count) { return count == HttpTransport::kMustWait; }

}  // namespace

HttpConnection::HttpConnection(std::unique_ptr<HttpTransport> transport)
    : transport_(std::move(transport)),
      deadline_(Clock::now() + kRequestTimeout) {}

pollfd HttpConnection::ToPoll() const {
  return {transport_->socket(),
          transport_->PollEvents(state_ == State::kWriting),
          0};
}

bool HttpConnection::Advance(const Answer& answer) {
  if (state_ == State::kReading && !Read(answer)) return false;
  if (state_ == State::kWriting && !Write()) return false;
  return state_ != State::kDraining || Drain();
}

bool HttpConnection::IsOverdue() const { return Clock::now() >= deadline_; }

bool HttpConnection::Read(const Answer& answer) {
  char block[kBlockBytes];
  const ssize_t count = transport_->Read(block, sizeof(block));
  if (count <= 0) return MustWait(count);
  text_.append(block, static_cast<size_t>(count));
  const size_t end = text_.find("\r\n\r\n");
  if (end == std::string::npos) return text_.size() <= kMaxRequestBytes;
  if (end > kMaxRequestBytes) return false;
  text_ = answer(text_, transport_->PeerRoles());
  EnterState(State::kWriting, kAnswerTimeout);
  return true;
}

bool HttpConnection::Write() {
  const ssize_t count =
      transport_->Write(text_.data() + done_, text_.size() - done_);
  if (count <= 0) return MustWait(count);
  done_ += static_cast<size_t>(count);
  if (done_ < text_.size()) return true;
  transport_->EndWriting();
  EnterState(State::kDraining, kDrainTimeout);
  return true;
}

// Closing with unread bytes, such as a refused body, would reset the
// connection, and the client might never see the answer.
bool HttpConnection::Drain() {
  char block[kBlockBytes];
  const ssize_t count = transport_->Read(block, sizeof(block));
  if (count <= 0) return MustWait(count);
  done_ += static_cast<size_t>(count);
  return done_ <= kMaxDrainedBytes;
}

void HttpConnection::EnterState(State state, std::chrono::seconds timeout) {
  state_ = state;
  done_ = 0;
  deadline_ = Clock::now() + timeout;
}

}  // namespace dapd
