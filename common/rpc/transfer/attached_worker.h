// AttachedWorker: the worker behind a service that already listens and reports
// its health while the model is still being read. Implements the two methods
// that both kinds of workers have.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"

#include "common/rpc/transfer/adapter_stream.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/rpc/transfer/take_adapter.h"

namespace dapd {

// `Worker` has served() and Load(), as RolloutWorker and TeacherWorker do.
// Until one is attached every method answers UNAVAILABLE. Thread-safe.
template <typename Worker>
class AttachedWorker {
 public:
  // `kind`: "rollout" or "teacher".
  explicit AttachedWorker(std::string kind) : kind_(std::move(kind)) {}

  // Must be called once. `worker` must outlive the server.
  void Attach(Worker* worker, const WorkerDescription& description) {
    description_ = description;
    taker_ = std::make_unique<AdapterTaker>(
        description,
        worker->served(),
        [worker](AdapterUpload upload, const std::function<bool()>& cancelled) {
          return worker->Load(std::move(upload), cancelled);
        });
    worker_ = worker;
  }

  // Returns null until Attach; afterwards description() describes it.
  Worker* get() const { return worker_; }
  const WorkerDescription& description() const { return description_; }

  grpc::Status StillLoading() const {
    return {grpc::StatusCode::UNAVAILABLE,
            absl::StrCat("the ", kind_, " worker is still loading its model")};
  }

  grpc::Status Describe(v1::DescribeResponse* response) const {
    const Worker* worker = worker_;
    if (worker == nullptr) return StillLoading();
    *response = MakeDescribeResponse(description_, worker->served());
    return grpc::Status::OK;
  }

  // Implements LoadAdapter with encoded messages (encoded_methods.h).
  grpc::Status TakeAdapter(grpc::ServerContext* context,
                           grpc::ServerReader<grpc::ByteBuffer>* reader,
                           v1::LoadAdapterResponse* response) {
    if (worker_ == nullptr) return StillLoading();
    return taker_->Take(context, reader, response);
  }

 private:
  const std::string kind_;
  // Both are set before worker_.
  WorkerDescription description_;
  std::unique_ptr<AdapterTaker> taker_;
  std::atomic<Worker*> worker_ = nullptr;
};

}  // namespace dapd
