// Input: an UploadStream as text: the messages of one LoadAdapter call.
// An accepted adapter has the bytes that were sent, and sending it again gives
// an equal adapter.
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/content_digest.h"
#include "common/base/crc32c.h"
#include "common/rpc/transfer/adapter_stream.h"
#include "tests/fakes/encoded_messages.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/message_input.h"
#include "tests/fuzz/streams.pb.h"

namespace dapd {
namespace {

WorkerDescription Worker() {
  WorkerDescription worker;
  worker.vocab_size = 32;
  worker.max_positions = 64;
  worker.max_adapter_bytes = 1 << 20;
  return worker;
}

// Sets the checksums that a right sender would send.
void MakeChecksumsGood(fuzz::UploadStream& stream) {
  std::string bytes;
  for (v1::LoadAdapterRequest& request : *stream.mutable_requests()) {
    if (!request.has_chunk()) continue;
    const std::string& data = request.chunk().data();
    request.mutable_chunk()->set_crc32c(Crc32c(data));
    bytes += data;
  }
  auto kind = DigestKind::kSha256;
  for (const v1::LoadAdapterRequest& request : stream.requests()) {
    bytes += request.header().config_json();
    if (request.header().digest_kind() == v1::DIGEST_KIND_XXH3_128) {
      kind = DigestKind::kXxh3;
    }
  }
  ContentDigest digest(kind);
  digest.Update(bytes);
  const std::string hex = digest.HexDigest();
  for (v1::LoadAdapterRequest& request : *stream.mutable_requests()) {
    if (request.has_end()) request.mutable_end()->set_digest(hex);
  }
}

absl::StatusOr<AdapterUpload> Receive(
    const std::vector<v1::LoadAdapterRequest>& messages) {
  size_t next = 0;
  AdapterReceiver receiver(LimitsOf(Worker()));
  return ReceiveAdapter(receiver, [&](grpc::ByteBuffer* message) {
    if (next == messages.size()) return false;
    *message = EncodeMessage(messages[next++]);
    return true;
  });
}

void CheckSentAgain(const AdapterUpload& upload) {
  PolicyUpdate update;
  update.version = upload.version;
  update.is_base = upload.is_base;
  update.adapter = upload.adapter;
  update.probe_ids = upload.probe_ids;
  const AdapterUpload again = Receive(AdapterMessages(update)).value();
  Check(again.version == upload.version && again.is_base == upload.is_base &&
            again.probe_ids == upload.probe_ids &&
            again.adapter.digest == upload.adapter.digest &&
            again.adapter.tensors == upload.adapter.tensors &&
            again.adapter.config_json == upload.adapter.config_json,
        "an upload survives being sent again");
}

void Run(fuzz::UploadStream stream) {
  if (stream.good_checksums()) MakeChecksumsGood(stream);
  const std::vector<v1::LoadAdapterRequest> messages(stream.requests().begin(),
                                                     stream.requests().end());
  const auto upload = Receive(messages);
  if (!upload.ok()) return;
  std::string sent;
  for (const v1::LoadAdapterRequest& message : messages) {
    sent += message.chunk().data();
  }
  Check(upload->adapter.tensors.view() == sent,
        "what arrived is what was sent");
  Check(upload->probe_ids.size() >= 2 && upload->version >= 0,
        "there is a probe and a version");
  CheckSentAgain(*upload);
}

}  // namespace
}  // namespace dapd

DAPD_FUZZ_MESSAGES(dapd::fuzz::UploadStream, dapd::Run)
