// Tests AdapterTaker behind a real server when several clients send one update.
#include "common/rpc/transfer/take_adapter.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/base/mutex.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/rpc/server/server.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/transfer/encoded_methods.h"
#include "dapd/v1/rollout.grpc.pb.h"
#include "tests/fakes/generic_call.h"
#include "tests/fakes/worker_servers.h"

namespace dapd {
namespace {

// HTTP/2's windows hold less, so bytes that are not read are not sent either.
constexpr uint64_t kAdapterBytes = 64 << 20;

WorkerDescription Description() {
  WorkerDescription description;
  description.service = "rollout";
  description.vocab_size = 100;
  description.max_positions = 32;
  description.max_adapter_bytes = kAdapterBytes;
  return description;
}

// Takes adapters and does nothing else.
class TakingService : public v1::RolloutService::Service {
 public:
  TakingService()
      : taker_(Description(),
               served_,
               [this](AdapterUpload upload, const std::function<bool()>&) {
                 return Load(upload);
               }) {
    MarkMethodStreamed(
        MethodIndex(v1::RolloutService::service_full_name(), "LoadAdapter"),
        EncodedReaderMethod(this, &TakingService::TakeAdapter));
  }

  std::atomic<int> loaded = 0;
  std::atomic<int> probed = 0;
  std::atomic<bool> forget = false;  // forgets a served set once
  std::atomic<bool> refuse_first = false;

 private:
  grpc::Status TakeAdapter(grpc::ServerContext* context,
                           grpc::ServerReader<grpc::ByteBuffer>* reader,
                           v1::LoadAdapterResponse* response) {
    return taker_.Take(context, reader, response);
  }

  // Workers load on one thread at a time, too.
  absl::StatusOr<LoadResult> Load(const AdapterUpload& upload) {
    MutexLock lock(&mutex_);
    if (refuse_first.exchange(false)) {
      return absl::ResourceExhaustedError("no memory");
    }
    if (upload.is_served && forget.exchange(false)) {
      served_.Set(upload.set, {true, upload.version, "another", "another"});
    }
    const ServedPolicy old = served_.Of(upload.set);
    ASSIGN_OR_RETURN(const bool is_served, IsServedAlready(old, upload));
    if (is_served) {
      ++probed;
      return LoadResult{upload.set, served_.Keep(upload), {7, {-1.5F}}};
    }
    ++loaded;
    const ServedPolicy fresh{
        true, upload.version, upload.adapter.digest, upload.key};
    served_.Set(upload.set, fresh);
    return LoadResult{upload.set, fresh, {7, {-1.5F}}};
  }

  Mutex mutex_;
  ServedWeights served_;
  AdapterTaker taker_;
};

// Holds what one client saw of its push.
struct Push {
  absl::Status status;
  uint64_t bytes = 0;
  std::string digest;
};

class TakeAdapterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = StartOrFail(
        "127.0.0.1:0", &service_, v1::RolloutService::service_full_name());
  }
  void TearDown() override { server_->Shutdown(absl::ZeroDuration()); }

  static PolicyUpdate MakeUpdate(const std::string& key, char content = 'w') {
    PolicyUpdate update;
    update.version = 3;
    update.key = key;
    const std::string tensors(kAdapterBytes, content);
    update.adapter.digest = Sha256Hex(tensors + "{}");
    update.adapter.tensors = tensors;
    update.adapter.config_json = "{}";
    update.probe_ids = {1, 2};
    return update;
  }

  Push Send(const PolicyUpdate& update) {
    // Each push has its own connection, as another rank has.
    const auto channel = OpenPlaintextChannel(server_->address());
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
    v1::LoadAdapterResponse response;
    const auto writer = OpenEncodedWriter(channel.get(),
                                          "/dapd.v1.RolloutService/LoadAdapter",
                                          &context,
                                          &response);
    Push push;
    const absl::Status sent = SendAdapter(
        WeightSet::kLive, update, [&](const grpc::ByteBuffer& message) {
          push.bytes += message.Length();
          return writer->Write(message);
        });
    if (sent.ok()) writer->WritesDone();
    push.status = FromGrpcStatus(writer->Finish());
    push.digest = response.adapter().digest();
    return push;
  }

  std::vector<Push> SendTogether(const PolicyUpdate& update, size_t count) {
    std::vector<Push> pushes(count);
    {
      std::vector<std::jthread> clients;
      for (Push& push : pushes) {
        clients.emplace_back([&] { push = Send(update); });
      }
    }
    return pushes;
  }

  TakingService service_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(TakeAdapterTest, OfSeveralWithOneKeyOneIsReadAndAllAreAnswered) {
  const PolicyUpdate update = MakeUpdate("attempt/3");
  const std::vector<Push> pushes = SendTogether(update, 4);
  uint64_t bytes = 0;
  for (const Push& push : pushes) {
    EXPECT_TRUE(push.status.ok()) << push.status;
    EXPECT_EQ(push.digest, update.adapter.digest);
    bytes += push.bytes;
  }
  EXPECT_EQ(service_.loaded, 1);
  EXPECT_EQ(service_.probed, 3);
  std::printf("4 clients sent %.2f times one adapter\n",
              static_cast<double>(bytes) / kAdapterBytes);
  EXPECT_LT(bytes, 2 * kAdapterBytes);
}

TEST_F(TakeAdapterTest, OneThatComesLaterIsOnlyProbed) {
  const PolicyUpdate update = MakeUpdate("attempt/3");
  ASSERT_TRUE(Send(update).status.ok());
  const Push later = Send(update);
  EXPECT_TRUE(later.status.ok()) << later.status;
  EXPECT_EQ(later.digest, update.adapter.digest);
  EXPECT_LT(later.bytes, kAdapterBytes / 2);
  EXPECT_EQ(service_.loaded, 1);
}

TEST_F(TakeAdapterTest, WithoutAKeyOrWithAnotherAllIsRead) {
  ASSERT_TRUE(Send(MakeUpdate("first/3", 'a')).status.ok());
  const PolicyUpdate next = MakeUpdate("second/3", 'b');
  const Push another = Send(next);
  EXPECT_TRUE(another.status.ok()) << another.status;
  EXPECT_EQ(another.digest, next.adapter.digest);
  EXPECT_GT(another.bytes, kAdapterBytes);
  EXPECT_GT(Send(MakeUpdate("", 'b')).bytes, kAdapterBytes);
  EXPECT_EQ(service_.loaded, 2);
}

// The pushes of a trainer that was started again have such a key.
TEST_F(TakeAdapterTest, AnotherKeyForWhatIsServedIsSharedAsWell) {
  ASSERT_TRUE(Send(MakeUpdate("first/3")).status.ok());
  uint64_t bytes = 0;
  for (const Push& push : SendTogether(MakeUpdate("second/3"), 4)) {
    EXPECT_TRUE(push.status.ok()) << push.status;
    bytes += push.bytes;
  }
  EXPECT_EQ(service_.loaded, 1);
  EXPECT_LT(bytes, 2 * kAdapterBytes);
}

TEST_F(TakeAdapterTest, WhoWaitedForOneThatFailedIsReadInstead) {
  service_.refuse_first = true;
  const PolicyUpdate update = MakeUpdate("attempt/3");
  int failed = 0;
  for (const Push& push : SendTogether(update, 3)) {
    failed += push.status.ok() ? 0 : 1;
    EXPECT_TRUE(push.status.ok() || absl::IsResourceExhausted(push.status));
  }
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(service_.loaded, 1);
}

TEST_F(TakeAdapterTest, WhatIsNoLongerServedIsReadAgain) {
  const PolicyUpdate update = MakeUpdate("attempt/3");
  ASSERT_TRUE(Send(update).status.ok());
  // Other weights arrive between the check of the served weights and the probe.
  service_.forget = true;
  const Push again = Send(update);
  EXPECT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.digest, update.adapter.digest);
  EXPECT_GT(again.bytes, kAdapterBytes);
  EXPECT_EQ(service_.loaded, 2);
}

}  // namespace
}  // namespace dapd
