#include "common/collective/rank_follower.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/bounded_queue.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/collective/rank_link.h"
#include "common/rpc/client/channel.h"
#include "common/rpc/rpc_credentials.h"
#include "common/rpc/status_conversion.h"
#include "dapd/v1/rank.grpc.pb.h"

namespace dapd {
namespace {

constexpr absl::Duration kRetryInterval = absl::Milliseconds(300);
// The interval at which a rank asks whether a run that is over has begun anew.
constexpr absl::Duration kOverInterval = absl::Seconds(1);
// Messages of rank 0 that may wait, each with a chunk of kRankChunkBytes.
constexpr size_t kReceivedMessages = 4;

class RankFollower final : public Collective {
 public:
  using Stream = grpc::ClientReaderWriter<v1::RankMessage, v1::RankMessage>;

  explicit RankFollower(const RankOptions& options)
      : options_(options),
        link_(
            options_,
            /*peer=*/0,
            [this](v1::RankMessage* message) {
              std::optional<v1::RankMessage> next = received_.Pop();
              if (next.has_value()) *message = *std::move(next);
              return next.has_value();
            },
            [this](const v1::RankMessage& message) {
              return stream_->Write(message);
            }) {}
  ~RankFollower() override {
    Cancel();
    received_.Close();
    if (reader_.joinable()) reader_.join();
    if (stream_ != nullptr) stream_->Finish();
  }

  // Tries until rank 0 answers, since rank 0 may start later than this rank.
  absl::Status Join() {
    absl::Time deadline = SteadyNow() + options_.join_timeout;
    bool was_over = false;
    while (true) {
      const absl::Status status = TryJoin();
      if (status.ok()) reader_ = std::jthread([this] { ReadOn(); });
      if (status.ok() || absl::IsFailedPrecondition(status)) return status;
      if (options_.gives_up && options_.gives_up()) {
        return absl::CancelledError(absl::StrCat(
            "told to stop while waiting for ", options_.called, " 0"));
      }
      const bool is_over = absl::IsOutOfRange(status);
      if (is_over) {
        deadline = SteadyNow() + options_.join_timeout;
        if (!std::exchange(was_over, true)) {
          LogInfo(
              "rank 0 says that the run is over; this rank waits until the run "
              "begins anew, for example with more steps");
        }
      } else if (SteadyNow() >= deadline) {
        return absl::UnavailableError(
            absl::StrCat(options_.called,
                         " 0 could not be reached at ",
                         options_.rendezvous,
                         " within ",
                         absl::FormatDuration(options_.join_timeout),
                         ": ",
                         std::string(status.message())));
      }
      absl::SleepFor(is_over ? kOverInterval : kRetryInterval);
    }
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.world_size; }

  absl::Status Sum(absl::Span<float> values) override {
    return Outcome(Exchange(values));
  }

  absl::Status Broadcast(std::string* bytes) override {
    return Outcome(link_.Receive(next_operation_++, bytes));
  }

  absl::StatusOr<std::vector<std::string>> Gather(std::string bytes) override {
    RETURN_IF_ERROR(Outcome(link_.Send(next_operation_++, bytes)));
    return std::vector<std::string>{};
  }

  absl::Status AwaitAll() override { return Gather("").status(); }

  bool HasLostRank() const override { return received_.closed(); }

  void Cancel() override {
    is_cancelled_ = true;
    MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  // Reads also while no operation waits for a message, because only a read
  // notices that rank 0 is gone.
  void ReadOn() {
    v1::RankMessage message;
    while (stream_->Read(&message) && received_.Push(std::move(message))) {
    }
    received_.Close();
  }

  absl::Status Outcome(const absl::Status& status) const {
    return is_cancelled_ && absl::IsAborted(status) ? RanksCancelled(options_)
                                                    : status;
  }

  absl::Status Exchange(absl::Span<float> values) {
    const uint64_t operation = next_operation_++;
    const uint64_t total = values.size() * sizeof(float);
    char* bytes = reinterpret_cast<char*>(values.data());
    std::string part;
    for (uint64_t offset = 0; offset < total; offset += kRankChunkBytes) {
      const size_t size = std::min<size_t>(kRankChunkBytes, total - offset);
      RETURN_IF_ERROR(
          link_.SendChunk(operation, total, offset, {bytes + offset, size}));
      uint64_t expected = total;
      RETURN_IF_ERROR(link_.ReceiveChunk(operation, offset, &expected, &part));
      if (part.size() != size) {
        return absl::DataLossError("rank 0 sent a sum of a different length");
      }
      std::memcpy(bytes + offset, part.data(), size);
    }
    return absl::OkStatus();
  }

  absl::Status TryJoin() {
    // Each attempt opens a new channel: a channel that failed backs off for
    // longer than kRetryInterval.
    ASSIGN_OR_RETURN(channel_,
                     OpenChannel(options_.rendezvous,
                                 options_.credentials == nullptr
                                     ? *RpcCredentials::Loopback()
                                     : *options_.credentials,
                                 {Role::kTrainer}));
    stub_ = v1::RankService::NewStub(channel_);
    stream_.reset();
    {
      MutexLock lock(&mutex_);
      context_ = std::make_unique<grpc::ClientContext>();
    }
    stream_ = stub_->Join(context_.get());
    v1::RankMessage message;
    v1::RankHello& hello = *message.mutable_hello();
    hello.set_rank(static_cast<uint32_t>(options_.rank));
    hello.set_world_size(static_cast<uint32_t>(options_.world_size));
    hello.set_identity(options_.identity);
    hello.set_device(options_.device);
    if (stream_->Write(message) && stream_->Read(&message)) {
      if (message.has_welcome()) return absl::OkStatus();
      context_->TryCancel();
    }
    const absl::Status status = FromGrpcStatus(stream_->Finish());
    stream_.reset();
    return status.ok() ? absl::UnavailableError("rank 0 closed the stream")
                       : status;
  }

  const RankOptions options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::RankService::Stub> stub_;
  Mutex mutex_;
  std::unique_ptr<grpc::ClientContext> context_;  // must outlive stream_
  std::unique_ptr<Stream> stream_;
  RankLink link_;
  uint64_t next_operation_ = 0;
  std::atomic<bool> is_cancelled_ = false;
  BoundedQueue<v1::RankMessage> received_{kReceivedMessages};
  std::jthread reader_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> JoinRankLeader(
    const RankOptions& options) {
  auto follower = std::make_unique<RankFollower>(options);
  RETURN_IF_ERROR(follower->Join());
  return follower;
}

}  // namespace dapd
