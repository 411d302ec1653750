// The conversation with one teacher worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpcpp/support/byte_buffer.h"

#include "common/base/bounded_queue.h"
#include "common/base/mutex.h"
#include "common/rpc/transfer/chunk_stream.h"
#include "dapd/v1/teacher.grpc.pb.h"
#include "services/trainer/workers/grpc_session.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

using TeacherSessionBase = GrpcSession<v1::TeacherService,
                                       ScoreTask,
                                       ScoreResult,
                                       v1::ScoreRequest,
                                       grpc::ByteBuffer>;

class TeacherSession final : public TeacherSessionBase {
 public:
  TeacherSession(const std::string& endpoint,
                 const RpcCredentials& credentials,
                 const ExpectedWorker& expected,
                 absl::Duration load_timeout,
                 Timeline* timeline,
                 int64_t connections)
      : TeacherSessionBase(endpoint,
                           Role::kTeacher,
                           credentials,
                           expected,
                           load_timeout,
                           timeline,
                           connections),
        news_track_(absl::StrCat("news to ", endpoint)) {}

  absl::Status OpenStream(const PolicyUpdates& updates) override;
  void HalfClose() override;
  absl::Status CloseStream() override;

  bool SendPrefix(const ScoreTask& partial) override;
  bool WithdrawPrefix(uint64_t id) override;

  // Returns DATA_LOSS for an invalid answer: a surplus or missing tensor,
  // another shape or dtype, a corrupted chunk, numbers that are not finite, ids
  // outside the vocabulary, a task that the worker was not given. Returns
  // FAILED_PRECONDITION for an answer of other weights.
  std::optional<TaskAnswer<ScoreResult>> Receive() override;

 private:
  struct ExpectedTensor {
    DType dtype = DType::kFloat32;
    std::vector<int64_t> shape;
  };
  // The expected and received parts of one task's answer.
  struct Partial {
    WeightSet weights = WeightSet::kBase;
    // By view and tensor name; an entry is removed when its header arrives.
    std::map<std::pair<ViewName, std::string>, ExpectedTensor> missing;
    std::optional<TensorAssembler> tensor;
    ScoreResult result;
  };

  std::unique_ptr<Stream> StartStream(grpc::Channel* channel,
                                      grpc::ClientContext* context) override;
  v1::ScoreRequest ToRequest(const ScoreTask& task) override;
  // Returns a request of the task without its views.
  v1::ScoreRequest BeginRequest(const ScoreTask& task) const;
  Partial Expect(const ScoreTask& task) const;
  // Adds a message of the worker to its answer. Returns the answer once it is
  // complete.
  std::optional<TaskAnswer<ScoreResult>> Add(size_t lane,
                                             grpc::ByteBuffer& message);
  // Reads a lane to its end; runs on its own thread.
  void Read(size_t lane);
  std::optional<absl::StatusOr<ScoreResult>> Add(
      const v1::ScoreResponse& response, Partial& partial) const;
  absl::Status AddHeader(const v1::ScoredTensor& tensor,
                         Partial& partial) const;
  template <typename Chunk>
  absl::Status AddChunk(const Chunk& chunk, Partial& partial) const;
  // Returns DATA_LOSS if the numbers of a complete answer cannot be scores.
  absl::Status CheckValues(const ScoreResult& result) const;
  absl::StatusOr<ScoreResult> Finish(const v1::ScoreDone& done,
                                     Partial& partial) const;
  void Record(const v1::ScoreTimes& times, const ScoreResult& result);

  const std::string news_track_;
  // Prefix tokens sent on this stream, by task and view.
  std::map<uint64_t, std::map<ViewName, size_t>> prefixes_;
  Mutex mutex_;
  // The entries are ordered by id and belong to the reader of the task's lane.
  std::map<uint64_t, Partial> partial_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> half_closed_ = false;
  std::atomic<size_t> reading_ = 0;  // lanes
  std::unique_ptr<BoundedQueue<TaskAnswer<ScoreResult>>> answers_;
  std::vector<std::jthread> readers_;
};

}  // namespace dapd
