// TeacherService: the gRPC face of a TeacherWorker (proto/dapd/v1/teacher.proto
// says in which order messages come). A handler converts, hands over, and
// answers; nothing is computed here.
//
// It answers UNAVAILABLE until a worker is attached, so that a server can
// listen, and tell its health, while the model is still being read.
#pragma once

#include "grpcpp/support/byte_buffer.h"

#include "common/rpc/transfer/attached_worker.h"
#include "common/rpc/transfer/served_policy.h"
#include "dapd/v1/teacher.grpc.pb.h"
#include "services/teacher/teacher_worker.h"

namespace dapd {

class TeacherService final : public v1::TeacherService::Service {
 public:
  TeacherService();

  // Once. `worker` must outlive the server.
  void Attach(TeacherWorker* worker, const WorkerDescription& description) {
    worker_.Attach(worker, description);
  }

  grpc::Status Describe(grpc::ServerContext* context,
                        const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;

 private:
  // Score, its answers encoded (encoded_methods.h).
  grpc::Status StreamScores(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<grpc::ByteBuffer, v1::ScoreRequest>* stream);

  AttachedWorker<TeacherWorker> worker_{"teacher"};
};

}  // namespace dapd
