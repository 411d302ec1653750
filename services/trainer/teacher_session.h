// The conversation with one teacher worker.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/chunk_stream.h"
#include "dapd/v1/teacher.grpc.pb.h"
#include "services/trainer/grpc_session.h"
#include "services/trainer/teacher_client.h"

namespace dapd {

using TeacherSessionBase = GrpcSession<v1::TeacherService,
                                       ScoreTask,
                                       ScoreResult,
                                       v1::ScoreRequest,
                                       v1::ScoreResponse>;

class TeacherSession final : public TeacherSessionBase {
 public:
  TeacherSession(const std::string& endpoint,
                 const RpcCredentials& credentials,
                 const ExpectedWorker& expected,
                 absl::Duration load_timeout)
      : TeacherSessionBase(
            endpoint, Role::kTeacher, credentials, expected, load_timeout) {}

  bool Advise(const ScoreTask& partial) override;
  bool Withdraw(uint64_t id) override;

  // An answer that is not what was asked for (a tensor too many, missing, or of
  // another shape or dtype, a corrupted chunk, a task it was not given) is
  // DATA_LOSS; one of another snapshot FAILED_PRECONDITION.
  std::optional<TaskAnswer<ScoreResult>> Receive() override;

 private:
  struct ExpectedTensor {
    DType dtype = DType::kFloat32;
    std::vector<int64_t> shape;
  };
  // Of one task: what is to come, what came.
  struct Partial {
    bool snapshot = false;
    // By view and tensor name; taken out as their headers come.
    std::map<std::pair<std::string, std::string>, ExpectedTensor> missing;
    std::optional<TensorAssembler> tensor;
    ScoreResult result;
  };

  std::unique_ptr<Stream> StartStream(grpc::ClientContext* context) override;
  v1::ScoreRequest ToRequest(const ScoreTask& task,
                             const PolicyUpdate& update) override;
  Partial Expect(const ScoreTask& task) const;
  // Nothing while the answer goes on.
  std::optional<absl::StatusOr<ScoreResult>> Add(
      const v1::ScoreResponse& response, Partial& partial) const;
  absl::Status AddHeader(const v1::ScoredTensor& tensor,
                         Partial& partial) const;
  absl::Status AddChunk(const v1::TensorChunk& chunk, Partial& partial) const;
  absl::StatusOr<ScoreResult> Finish(const v1::ScoreDone& done,
                                     Partial& partial) const;

  // Tokens advised on this stream, by task and view.
  std::map<uint64_t, std::map<std::string, size_t>> advised_;
  Mutex mutex_;
  std::map<uint64_t, Partial> partial_ ABSL_GUARDED_BY(mutex_);  // by id
};

}  // namespace dapd
