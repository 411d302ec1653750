// TeacherService: the gRPC interface of a TeacherWorker
// (proto/dapd/v1/teacher.proto defines the order of messages). A handler
// converts messages and passes them on; it computes nothing.
//
// It answers UNAVAILABLE until a worker is attached, so that a server can
// listen and report its health while the model is still being read.
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

  // Must be called once. `worker` must outlive the server.
  void Attach(TeacherWorker* worker, const WorkerDescription& description) {
    worker_.Attach(worker, description);
  }

  grpc::Status Describe(grpc::ServerContext* context,
                        const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;

 private:
  // Implements Score with encoded answers (encoded_methods.h).
  grpc::Status StreamScores(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<grpc::ByteBuffer, v1::ScoreRequest>* stream);

  AttachedWorker<TeacherWorker> worker_{"teacher"};
};

}  // namespace dapd
