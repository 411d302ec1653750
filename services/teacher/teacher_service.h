// TeacherService: the gRPC face of a TeacherWorker (proto/dapd/v1/teacher.proto
// says in which order messages come). A handler converts, hands over, and
// answers; nothing is computed here.
//
// It answers UNAVAILABLE until a worker is attached, so that a server can
// listen, and tell its health, while the model is still being read.
#pragma once

#include <atomic>
#include <memory>

#include "grpcpp/support/byte_buffer.h"

#include "common/rpc/transfer/served_policy.h"
#include "common/rpc/transfer/take_adapter.h"
#include "dapd/v1/teacher.grpc.pb.h"
#include "services/teacher/teacher_worker.h"

namespace dapd {

class TeacherService final : public v1::TeacherService::Service {
 public:
  TeacherService();

  // Once. `worker` must outlive the server.
  void Attach(TeacherWorker* worker, const WorkerDescription& description);

  grpc::Status Describe(grpc::ServerContext* context,
                        const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;

 private:
  // LoadAdapter and Score, payloads encoded (encoded_methods.h).
  grpc::Status TakeAdapter(grpc::ServerContext* context,
                           grpc::ServerReader<grpc::ByteBuffer>* reader,
                           v1::LoadAdapterResponse* response);
  grpc::Status StreamScores(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<grpc::ByteBuffer, v1::ScoreRequest>* stream);

  // Both set before worker_.
  WorkerDescription description_;
  std::unique_ptr<AdapterTaker> taker_;
  std::atomic<TeacherWorker*> worker_ = nullptr;
};

}  // namespace dapd
