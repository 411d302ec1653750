#include "common/collective/rank_leader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/collective/rank_link.h"
#include "common/rpc/server/server.h"
#include "dapd/v1/rank.grpc.pb.h"

namespace dapd {
namespace {

using Stream = grpc::ServerReaderWriter<v1::RankMessage, v1::RankMessage>;

// The interval at which a waiting rank checks the other ranks, and whether it
// should continue to wait.
constexpr absl::Duration kLivenessPoll = absl::Milliseconds(200);
constexpr absl::Duration kGivesUpPoll = absl::Milliseconds(100);

// Keeps the streams open while the compute thread reads and writes them.
class Members final : public v1::RankService::Service {
 public:
  explicit Members(RankOptions options) : options_(std::move(options)) {}

  grpc::Status Join(grpc::ServerContext* context, Stream* stream) override {
    v1::RankMessage message;
    if (!stream->Read(&message) || !message.has_hello()) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              "the first message is not a hello"};
    }
    const v1::RankHello& hello = message.hello();
    const int rank = static_cast<int>(hello.rank());
    if (const std::string refusal = WhyRefused(hello); !refusal.empty()) {
      // A person who looks for a missing rank looks into this log.
      LogWarning(absl::StrCat(
          "refused ", options_.called, " ", hello.rank(), ": ", refusal));
      MutexLock lock(&mutex_);
      last_refusal_ = refusal;
      return {grpc::StatusCode::FAILED_PRECONDITION, refusal};
    }
    {
      MutexLock lock(&mutex_);
      if (closing_) return {grpc::StatusCode::UNAVAILABLE, "the job is ending"};
      if (!members_.try_emplace(rank, Member{context, stream}).second) {
        return {grpc::StatusCode::ALREADY_EXISTS,
                absl::StrCat("rank ", rank, " has already joined")};
      }
    }
    v1::RankMessage welcome;
    welcome.mutable_welcome();
    const bool is_welcomed = stream->Write(welcome);
    MutexLock lock(&mutex_);
    members_.at(rank).is_welcomed = is_welcomed;
    changed_.NotifyAll();
    bool is_gone = !is_welcomed;
    while (!closing_ && !is_gone) {
      if (is_complete_) {
        changed_.Wait(&mutex_);
      } else {
        // A rank that leaves before the job has begun may come again.
        changed_.WaitFor(&mutex_, kLivenessPoll);
        is_gone = !is_complete_ && context->IsCancelled();
      }
    }
    // The stream and its context end with this handler.
    members_.erase(rank);
    changed_.NotifyAll();
    if (!is_gone) return grpc::Status::OK;
    LogWarning(absl::StrCat(
        options_.called, " ", rank, " left before the others joined"));
    return grpc::Status::CANCELLED;
  }

  // Blocks until all ranks have joined. From then on they stay until Close.
  absl::Status WaitForAll() {
    const absl::Time deadline = SteadyNow() + options_.join_timeout;
    MutexLock lock(&mutex_);
    while (true) {
      const std::vector<std::string> missing = Missing();
      if (missing.empty()) break;
      if (options_.gives_up && options_.gives_up()) {
        return absl::CancelledError(absl::StrCat(
            "told to stop while waiting for ", options_.called, "s"));
      }
      const absl::Duration left = deadline - SteadyNow();
      if (left <= absl::ZeroDuration()) {
        return absl::UnavailableError(
            absl::StrCat(options_.called,
                         " ",
                         absl::StrJoin(missing, ", "),
                         " did not join at ",
                         options_.rendezvous,
                         " within ",
                         absl::FormatDuration(options_.join_timeout),
                         last_refusal_.empty()
                             ? ""
                             : absl::StrCat("; a rank that came was refused: ",
                                            last_refusal_)));
      }
      changed_.WaitFor(&mutex_, std::min(left, kGivesUpPoll));
    }
    is_complete_ = true;
    return absl::OkStatus();
  }

  Stream* StreamOf(int rank) {
    MutexLock lock(&mutex_);
    return members_.at(rank).stream;
  }

  // Returns whether a client has gone or its stream was cancelled.
  bool HasLost() const {
    MutexLock lock(&mutex_);
    return std::ranges::any_of(members_, [](const auto& member) {
      return member.second.context->IsCancelled();
    });
  }

  // Cancels every stream, so that the compute thread's reads and writes fail.
  void CancelAll() {
    MutexLock lock(&mutex_);
    for (const auto& [rank, member] : members_) member.context->TryCancel();
  }

  // Lets the handlers return. The streams are gone afterwards.
  void Close() {
    MutexLock lock(&mutex_);
    closing_ = true;
    changed_.NotifyAll();
    for (const auto& [rank, member] : members_) {
      if (!member.is_welcomed) member.context->TryCancel();
    }
    while (!members_.empty()) changed_.Wait(&mutex_);
  }

 private:
  struct Member {
    grpc::ServerContext* context;
    Stream* stream;
    bool is_welcomed = false;
  };

  // Returns why a rank does not belong to this job, or an empty string.
  std::string WhyRefused(const v1::RankHello& hello) const {
    const int rank = static_cast<int>(hello.rank());
    if (rank < 1 || rank >= options_.world_size ||
        static_cast<int>(hello.world_size()) != options_.world_size) {
      return absl::StrCat("this job has ",
                          options_.world_size,
                          " ranks and does not expect rank ",
                          rank,
                          " of ",
                          hello.world_size());
    }
    if (hello.device() != options_.device) return OtherDevice(hello);
    if (hello.identity() == options_.identity) return "";
    return "the base, the data, the configuration or the program's version "
           "differs from rank 0's; start all ranks from one build (`dapd "
           "--version`)";
  }

  std::string OtherDevice(const v1::RankHello& hello) const {
    const auto name = [](const std::string& device) {
      return device.empty() ? std::string("the CPU") : Printable(device);
    };
    return absl::StrCat(options_.called,
                        " ",
                        hello.rank(),
                        " computes on ",
                        name(hello.device()),
                        ", but rank 0 on ",
                        name(options_.device),
                        "; all ranks need the same kind of GPU, driver and "
                        "NCCL, since their results have to agree bit by bit");
  }

  std::vector<std::string> Missing() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> missing;
    for (int rank = 1; rank < options_.world_size; ++rank) {
      const auto found = members_.find(rank);
      if (found == members_.end() || !found->second.is_welcomed) {
        missing.push_back(absl::StrCat(rank));
      }
    }
    return missing;
  }

  const RankOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::string last_refusal_ ABSL_GUARDED_BY(mutex_);
  // Contains each rank while its handler runs.
  std::map<int, Member> members_ ABSL_GUARDED_BY(mutex_);
  bool is_complete_ ABSL_GUARDED_BY(mutex_) = false;  // all joined at the same
                                                      // time
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

class RankLeader final : public Collective {
 public:
  explicit RankLeader(const RankOptions& options)
      : options_(options), members_(options) {}
  ~RankLeader() override {
    members_.Close();
    if (server_ != nullptr) server_->Shutdown(absl::Seconds(1));
  }

  absl::Status Start() {
    RpcServerOptions server = {.listen = options_.rendezvous,
                               .credentials = options_.credentials};
    // Each rank keeps a call open for as long as the job lasts.
    server.max_threads += options_.world_size;
    ASSIGN_OR_RETURN(
        server_,
        RpcServer::Start(server,
                         {{&members_, v1::RankService::service_full_name()}}));
    server_->SetServing(true);
    LogInfo(absl::StrCat("waiting at ",
                         server_->address(),
                         " for ",
                         options_.world_size - 1,
                         " other ",
                         options_.called,
                         "s"));
    RETURN_IF_ERROR(members_.WaitForAll());
    for (int rank = 1; rank < options_.world_size; ++rank) {
      Stream* stream = members_.StreamOf(rank);
      links_.emplace_back(
          options_,
          rank,
          [stream](v1::RankMessage* message) { return stream->Read(message); },
          [stream](const v1::RankMessage& message) {
            return stream->Write(message);
          });
    }
    watchdog_ =
        std::jthread([this](const std::stop_token& stop) { Watch(stop); });
    return absl::OkStatus();
  }

  int rank() const override { return 0; }
  int size() const override { return options_.world_size; }

  absl::Status Sum(absl::Span<float> values) override {
    return Run([&](uint64_t operation) { return AddUp(operation, values); });
  }

  absl::Status Broadcast(std::string* bytes) override {
    return Run([&](uint64_t operation) -> absl::Status {
      for (RankLink& link : links_) {
        RETURN_IF_ERROR(link.Send(operation, *bytes));
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<std::string>> Gather(std::string bytes) override {
    std::vector<std::string> all{std::move(bytes)};
    RETURN_IF_ERROR(Run([&](uint64_t operation) -> absl::Status {
      for (RankLink& link : links_) {
        all.emplace_back();
        RETURN_IF_ERROR(link.Receive(operation, &all.back()));
      }
      return absl::OkStatus();
    }));
    return all;
  }

  absl::Status AwaitAll() override {
    return RunUntil(absl::InfiniteFuture(), [&](uint64_t operation) {
      std::string nothing;
      for (RankLink& link : links_) {
        RETURN_IF_ERROR(link.Receive(operation, &nothing));
      }
      return absl::OkStatus();
    });
  }

  bool HasLostRank() const override {
    return has_failed_ || members_.HasLost();
  }

  void Cancel() override {
    is_cancelled_ = true;
    members_.CancelAll();
  }

 private:
  template <typename Operation>
  absl::Status Run(const Operation& operation) {
    return RunUntil(SteadyNow() + options_.operation_timeout, operation);
  }

  template <typename Operation>
  absl::Status RunUntil(absl::Time deadline, const Operation& operation) {
    SetDeadline(deadline);
    const absl::Cleanup clear = [this] { SetDeadline(std::nullopt); };
    const absl::Status status = operation(next_operation_++);
    if (status.ok()) return status;
    has_failed_ = true;  // gRPC reports the end later than a read fails
    // The other ranks learn of the failure at once, whatever they are doing.
    members_.CancelAll();
    return is_cancelled_ && absl::IsAborted(status) ? RanksCancelled(options_)
                                                    : status;
  }

  // Adds chunk by chunk, so that memory does not grow with the number of ranks.
  absl::Status AddUp(uint64_t operation, absl::Span<float> values) {
    const uint64_t total = values.size() * sizeof(float);
    char* bytes = reinterpret_cast<char*>(values.data());
    std::string part;
    std::vector<float> addend;
    for (uint64_t offset = 0; offset < total; offset += kRankChunkBytes) {
      const size_t size = std::min<size_t>(kRankChunkBytes, total - offset);
      float* sum = values.data() + offset / sizeof(float);
      for (RankLink& link : links_) {
        uint64_t expected = total;
        RETURN_IF_ERROR(link.ReceiveChunk(operation, offset, &expected, &part));
        if (part.size() != size) {
          return absl::DataLossError(
              absl::StrCat(link.peer(), " sent a chunk of a different size"));
        }
        addend.resize(size / sizeof(float));
        std::memcpy(addend.data(), part.data(), size);
        for (size_t i = 0; i < addend.size(); ++i) sum[i] += addend[i];
      }
      for (RankLink& link : links_) {
        RETURN_IF_ERROR(
            link.SendChunk(operation, total, offset, {bytes + offset, size}));
      }
    }
    return absl::OkStatus();
  }

  // Sets the deadline of the running operation; nothing if no operation runs.
  void SetDeadline(std::optional<absl::Time> deadline) {
    MutexLock lock(&mutex_);
    deadline_ = deadline;
  }

  // Ends an operation that is late, or that a rank has left. Without this
  // thread a lost rank could go unnoticed, because the streams are read one
  // after another.
  void Watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      absl::SleepFor(absl::Milliseconds(100));
      const bool has_lost = members_.HasLost();
      {
        MutexLock lock(&mutex_);
        if (!deadline_.has_value()) continue;
        if (!has_lost && SteadyNow() < *deadline_) continue;
        deadline_ = std::nullopt;
      }
      LogError(absl::StrCat(
          "a ",
          options_.called,
          has_lost
              ? " is gone"
              : absl::StrCat(" did not respond within ",
                             absl::FormatDuration(options_.operation_timeout),
                             " (trainer.rank_timeout_seconds)")));
      members_.CancelAll();
    }
  }

  const RankOptions options_;
  Members members_;
  std::unique_ptr<RpcServer> server_;
  std::vector<RankLink> links_;  // of ranks 1, 2, ...
  uint64_t next_operation_ = 0;
  std::atomic<bool> is_cancelled_ = false;
  std::atomic<bool> has_failed_ = false;  // an operation has failed
  Mutex mutex_;
  std::optional<absl::Time> deadline_ ABSL_GUARDED_BY(mutex_);
  std::jthread watchdog_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> StartRankLeader(
    const RankOptions& options) {
  auto leader = std::make_unique<RankLeader>(options);
  RETURN_IF_ERROR(leader->Start());
  return leader;
}

}  // namespace dapd
