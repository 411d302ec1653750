// Streaming methods whose payload side consists of encoded messages
// (chunk_message.h) instead of protobuf's classes. The wire is the same, so
// either end may use the generated code.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "google/protobuf/descriptor.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/impl/method_handler_impl.h"
#include "grpcpp/impl/rpc_method.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"

#include "common/base/check.h"

namespace dapd {

// --- Server: for grpc::Service::MarkMethodStreamed, in the constructor of a
// --- service that derives from the generated one.

// Returns the place of `method` ("Score") in `service`
// ("dapd.v1.TeacherService").
inline int MethodIndex(const std::string& service, const std::string& method) {
  const auto* found =
      google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
          service + "." + method);
  Check(found != nullptr, "the method is in the contract");
  return found->index();
}

// Returns the method of a client stream that the server reads encoded.
// `service` outlives the server.
template <typename Service, typename Response>
grpc::internal::MethodHandler* EncodedReaderMethod(
    Service* service,
    grpc::Status (Service::*method)(grpc::ServerContext*,
                                    grpc::ServerReader<grpc::ByteBuffer>*,
                                    Response*)) {
  return new grpc::internal::
      ClientStreamingHandler<Service, grpc::ByteBuffer, Response>(
          std::mem_fn(method), service);
}

// Returns the method of a bidirectional stream: the server reads requests
// through their class and writes answers encoded.
template <typename Service, typename Request>
grpc::internal::MethodHandler* EncodedWriterMethod(
    Service* service,
    grpc::Status (Service::*method)(
        grpc::ServerContext*,
        grpc::ServerReaderWriter<grpc::ByteBuffer, Request>*)) {
  return new grpc::internal::
      BidiStreamingHandler<Service, Request, grpc::ByteBuffer>(
          std::mem_fn(method), service);
}

// --- Client. `method` ("/dapd.v1.TeacherService/Score") outlives the call.

// Opens a client stream that the client writes encoded.
template <typename Response>
std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>> OpenEncodedWriter(
    grpc::Channel* channel,
    const char* method,
    grpc::ClientContext* context,
    Response* response) {
  return std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>>(
      grpc::internal::ClientWriterFactory<grpc::ByteBuffer>::Create(
          channel,
          grpc::internal::RpcMethod(
              method, grpc::internal::RpcMethod::CLIENT_STREAMING),
          context,
          response));
}

// Opens a bidirectional stream: the client writes requests through their class
// and reads answers encoded.
template <typename Request>
std::unique_ptr<grpc::ClientReaderWriter<Request, grpc::ByteBuffer>>
OpenEncodedReader(grpc::Channel* channel,
                  const char* method,
                  grpc::ClientContext* context) {
  return std::unique_ptr<grpc::ClientReaderWriter<Request, grpc::ByteBuffer>>(
      grpc::internal::ClientReaderWriterFactory<Request, grpc::ByteBuffer>::
          Create(channel,
                 grpc::internal::RpcMethod(
                     method, grpc::internal::RpcMethod::BIDI_STREAMING),
                 context));
}

}  // namespace dapd
