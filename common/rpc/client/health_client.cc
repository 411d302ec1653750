#include "common/rpc/client/health_client.h"

#include <google/protobuf/empty.pb.h>
#include <google/protobuf/wrappers.pb.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

#include "common/base/status_macros.h"
#include "common/rpc/status_conversion.h"

namespace dapd {
namespace {

constexpr char kMethod[] = "/grpc.health.v1.Health/Check";
constexpr int kStatusField = 1;  // HealthCheckResponse.status

// HealthCheckRequest: the name is its only field.
std::string RequestFor(const std::string& service) {
  google::protobuf::StringValue request;
  request.set_value(service);
  return request.SerializeAsString();
}

absl::StatusOr<grpc::ByteBuffer> Call(
    const std::shared_ptr<grpc::Channel>& channel,
    const std::string& service,
    absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const grpc::Slice bytes(RequestFor(service));
  const grpc::ByteBuffer request(&bytes, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const auto call = stub.PrepareUnaryCall(&context, kMethod, request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  RETURN_IF_ERROR(FromGrpcStatus(status));
  return response;
}

// The names of the health protocol, whose proto is not part of Debian's gRPC;
// one enum field needs no generated code.
std::string StatusName(uint64_t value) {
  switch (value) {
    case 0:
      return "UNKNOWN";
    case 1:
      return "SERVING";
    case 2:
      return "NOT_SERVING";
    case 3:
      return "SERVICE_UNKNOWN";
    default:
      return absl::StrCat("status ", value);
  }
}

absl::StatusOr<uint64_t> ReadServingStatus(const grpc::ByteBuffer& response) {
  grpc::Slice slice;
  google::protobuf::Empty message;  // keeps unknown fields
  if (!response.DumpToSingleSlice(&slice).ok() ||
      !message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::UnavailableError("its answer is not a HealthCheckResponse");
  }
  uint64_t value = 0;
  const google::protobuf::UnknownFieldSet& fields =
      message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() == kStatusField &&
        field.type() == google::protobuf::UnknownField::TYPE_VARINT) {
      value = field.varint();
    }
  }
  return value;
}

}  // namespace

absl::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& service,
                         absl::Duration timeout) {
  ASSIGN_OR_RETURN(const grpc::ByteBuffer response,
                   Call(channel, service, timeout));
  ASSIGN_OR_RETURN(const uint64_t value, ReadServingStatus(response));
  const std::string name = StatusName(value);
  if (name == "SERVING") return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("it says ", name));
}

}  // namespace dapd
