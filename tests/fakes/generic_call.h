// Opens plaintext channels, and makes calls by name without a generated stub.
#pragma once

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"

#include "common/rpc/client/channel.h"

namespace dapd {

// Services must authenticate themselves (rpc_credentials.h); tests on loopback
// need not.
inline std::shared_ptr<grpc::Channel> OpenPlaintextChannel(
    const std::string& address) {
  return OpenChannel(address, grpc::InsecureChannelCredentials());
}

inline constexpr char kGetStatus[] = "/dapd.v1.TrainerService/GetStatus";

// Makes a unary call of `method` with the bytes of `request`. `*answer`, if
// given, receives the bytes of the answer.
inline grpc::Status CallByName(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& method,
                               const std::string& request = "",
                               std::string* answer = nullptr,
                               absl::Duration timeout = absl::Seconds(20)) {
  const grpc::Slice slice(request);
  const grpc::ByteBuffer sent(&slice, 1);
  grpc::ByteBuffer received;
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  grpc::GenericStub stub(channel);
  auto call = stub.PrepareUnaryCall(&context, method, sent, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&received, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (status.ok() && answer != nullptr) {
    grpc::Slice bytes;
    if (received.DumpToSingleSlice(&bytes).ok()) {
      answer->assign(bytes.begin(), bytes.end());
    }
  }
  return status;
}

}  // namespace dapd
