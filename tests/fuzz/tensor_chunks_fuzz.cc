// Input: a TensorStream as text: a tensor's header and its chunks.
// A complete tensor is the tensor that was sent, and sending it again gives an
// equal tensor.
#include <string>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/rpc/transfer/chunk_stream.h"
#include "dapd/v1/teacher.pb.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/message_input.h"
#include "tests/fuzz/streams.pb.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxBytes = 1 << 20;

void CheckSentAgain(const TensorAssembler& received) {
  const HostTensor& tensor = received.tensor();
  auto again = TensorAssembler::Start(MakeTensorHeader(received.name(), tensor),
                                      kMaxBytes);
  Check(again.ok(), "a received tensor can be sent again");
  SendChunks(
      {v1::ScoreResponse::kChunkFieldNumber},
      {tensor.data, tensor.bytes()},
      [&](const grpc::ByteBuffer& sent) {
        grpc::ByteBuffer message = sent;
        return again
            ->Add(*FindChunk(message, v1::ScoreResponse::kChunkFieldNumber))
            .ok();
      });
  Check(again->complete() && again->tensor().shape == tensor.shape &&
            again->tensor().dtype == tensor.dtype &&
            again->tensor().bytes() == tensor.bytes(),
        "a tensor survives being sent again");
}

void Run(const fuzz::TensorStream& stream) {
  auto assembler = TensorAssembler::Start(stream.header(), kMaxBytes);
  if (!assembler.ok()) return;
  std::string sent;
  for (v1::TensorChunk chunk : stream.chunks()) {
    if (stream.good_checksums()) {
      chunk.set_crc32c(Crc32c(chunk.data()));
    }
    if (!assembler->Add(chunk).ok()) return;
    sent += chunk.data();
  }
  if (!assembler->complete()) return;
  Check(assembler->tensor().bytes() == sent, "what arrived is what was sent");
  CheckSentAgain(*assembler);
}

}  // namespace
}  // namespace dapd

DAPD_FUZZ_MESSAGES(dapd::fuzz::TensorStream, dapd::Run)
