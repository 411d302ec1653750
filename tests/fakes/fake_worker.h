// Implements a worker without a network: sessions of a WorkerPool call it
// directly. The test decides when it is up, what it answers, and whether it
// answers at all. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"

#include "common/base/bounded_queue.h"
#include "common/base/mutex.h"
#include "common/rpc/pool/worker_session.h"

namespace dapd {

struct FakeTask {
  uint64_t id = 0;
  int64_t known = 0;  // known tokens of a prefix
};
struct FakeResult {
  uint64_t id = 0;
  std::string worker;
  int64_t version = 0;
};
using FakeAnswer = TaskAnswer<FakeResult>;

class FakeWorker {
 public:
  explicit FakeWorker(std::string name) : name_(std::move(name)) {}

  // Handles a task; by default the worker answers at once. Without a result
  // there is no answer.
  using Handler = std::function<std::vector<FakeAnswer>(const FakeTask& task,
                                                        int64_t version)>;
  void SetHandler(Handler handler) {
    MutexLock lock(&mutex_);
    handler_ = std::move(handler);
  }
  void SetConnectStatus(absl::Status status) {
    MutexLock lock(&mutex_);
    connect_status_ = std::move(status);
  }
  void SetLoadStatus(absl::Status status) {
    MutexLock lock(&mutex_);
    load_status_ = std::move(status);
  }
  void SetInstance(std::string instance) {
    MutexLock lock(&mutex_);
    instance_ = std::move(instance);
  }
  // While set, Load does not return.
  void HoldLoad(bool hold) { hold_load_ = hold; }
  // While set, no prefix is accepted: its sender waits until it is cancelled.
  void HoldPrefixes(bool hold) { hold_prefixes_ = hold; }
  bool holds_a_prefix() const { return holds_a_prefix_; }
  // Breaks every connection. If `status` is OK, new connections succeed.
  void Kill(absl::Status status) {
    SetConnectStatus(std::move(status));
    for (const auto& stream : TakeStreams()) stream->Close();
  }

  FakeAnswer Result(uint64_t id, int64_t version) const {
    return {id, FakeResult{id, name_, version}};
  }
  std::vector<uint64_t> seen() const {
    MutexLock lock(&mutex_);
    return seen_;
  }
  // Returns the known tokens of each task's prefix; -1 if it was withdrawn.
  std::map<uint64_t, int64_t> prefixes() const {
    MutexLock lock(&mutex_);
    return prefixes_;
  }
  std::vector<int64_t> loaded_versions() const {
    MutexLock lock(&mutex_);
    return loaded_versions_;
  }
  // Returns the sets of weights that the loaded versions became.
  std::vector<WeightSet> loaded_sets() const {
    MutexLock lock(&mutex_);
    return loaded_sets_;
  }
  int64_t connects() const {
    MutexLock lock(&mutex_);
    return connects_;
  }
  // Returns the number of streams that were half-closed instead of aborted.
  int64_t half_closes() const { return half_closes_; }
  // Sends an answer without a question on every open stream.
  void Push(const FakeAnswer& answer) {
    MutexLock lock(&mutex_);
    for (const auto& stream : streams_) stream->Push(answer);
  }

  static constexpr int64_t kMaxInFlight = 2;

 private:
  friend class FakeSession;
  using Stream = BoundedQueue<FakeAnswer>;

  std::set<std::shared_ptr<Stream>> TakeStreams() {
    MutexLock lock(&mutex_);
    return std::exchange(streams_, {});
  }

  const std::string name_;
  std::atomic<bool> hold_load_ = false;
  std::atomic<bool> hold_prefixes_ = false;
  std::atomic<bool> holds_a_prefix_ = false;
  std::atomic<int64_t> half_closes_ = 0;
  mutable Mutex mutex_;
  Handler handler_;
  absl::Status connect_status_;
  std::string instance_;
  absl::Status load_status_;
  std::set<std::shared_ptr<Stream>> streams_;
  std::vector<uint64_t> seen_;
  std::map<uint64_t, int64_t> prefixes_;
  std::vector<int64_t> loaded_versions_;
  std::vector<WeightSet> loaded_sets_;
  int64_t connects_ = 0;
};

class FakeSession : public WorkerSession<FakeTask, FakeResult> {
 public:
  // A null `worker` means that nothing listens there.
  explicit FakeSession(FakeWorker* worker) : worker_(worker) {}

  absl::StatusOr<WorkerGreeting> Connect() override {
    if (worker_ == nullptr) return absl::UnavailableError("nothing listens");
    MutexLock lock(&worker_->mutex_);
    ++worker_->connects_;
    if (!worker_->connect_status_.ok()) return worker_->connect_status_;
    return WorkerGreeting{FakeWorker::kMaxInFlight, worker_->instance_};
  }

  absl::StatusOr<uint64_t> Load(WeightSet set,
                                const PolicyUpdate& update) override {
    while (worker_->hold_load_) absl::SleepFor(absl::Milliseconds(1));
    MutexLock lock(&worker_->mutex_);
    if (!worker_->load_status_.ok()) return worker_->load_status_;
    worker_->loaded_versions_.push_back(update.version);
    worker_->loaded_sets_.push_back(set);
    return 0;
  }

  absl::Status OpenStream(const PolicyUpdates& updates) override {
    version_ = updates.begin()->second->version;
    auto stream = std::make_shared<FakeWorker::Stream>(1000);
    MutexLock lock(&worker_->mutex_);
    MutexLock own_lock(&mutex_);
    stream_ = stream;
    if (cancelled_) stream->Close();
    worker_->streams_.insert(stream);
    return worker_->connect_status_;
  }

  bool Send(const FakeTask& task) override {
    FakeWorker::Handler handler;
    {
      MutexLock lock(&worker_->mutex_);
      worker_->seen_.push_back(task.id);
      handler = worker_->handler_;
    }
    const std::vector<FakeAnswer> answers =
        handler ? handler(task, version_)
                : std::vector<FakeAnswer>{worker_->Result(task.id, version_)};
    for (const FakeAnswer& answer : answers) {
      if (!stream()->Push(answer)) return false;
    }
    return !stream()->closed();
  }

  bool SendPrefix(const FakeTask& partial) override {
    while (worker_->hold_prefixes_) {
      worker_->holds_a_prefix_ = true;
      if (stream()->closed()) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    MutexLock lock(&worker_->mutex_);
    worker_->prefixes_[partial.id] = partial.known;
    return true;
  }
  bool WithdrawPrefix(uint64_t id) override {
    MutexLock lock(&worker_->mutex_);
    worker_->prefixes_[id] = -1;
    return true;
  }

  std::optional<FakeAnswer> Receive() override { return stream()->Pop(); }
  void HalfClose() override {
    ++worker_->half_closes_;
    AbortStream();
  }
  void AbortStream() override {
    if (auto open = stream()) open->Close();
  }

  absl::Status CloseStream() override {
    MutexLock lock(&worker_->mutex_);
    const bool open = worker_->streams_.erase(stream()) > 0;
    return open ? absl::OkStatus() : absl::UnavailableError("connection reset");
  }

  void Cancel() override {
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    AbortStream();
  }

 private:
  std::shared_ptr<FakeWorker::Stream> stream() {
    MutexLock lock(&mutex_);
    return stream_;
  }

  FakeWorker* const worker_;
  int64_t version_ = 0;
  Mutex mutex_;
  bool cancelled_ = false;
  std::shared_ptr<FakeWorker::Stream> stream_;
};

}  // namespace dapd
