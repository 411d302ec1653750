#include "services/trainer/workers/worker_handshake.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/version.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class WorkerHandshakeTest : public ::testing::Test {
 protected:
  WorkerHandshakeTest() {
    worker_.set_service("rollout");
    worker_.set_layout_digest("layout");
    worker_.set_precision("float32");
    worker_.set_vocab_size(100);
    worker_.set_hidden_size(8);
    worker_.set_max_in_flight(4);
    update_.version = 3;
    update_.adapter.digest = "digest";
    update_.probe_ids = {1, 2, 3};
    update_.probe_logprobs = {-1.0F, -2.0F};
    update_.probe_tolerance = {0.01F, 0.01F};
    response_.mutable_adapter()->set_weights(v1::TEACHER_WEIGHTS_EMA);
    response_.mutable_adapter()->set_loaded(true);
    response_.mutable_adapter()->set_policy_version(3);
    response_.mutable_adapter()->set_digest("digest");
    response_.add_probe_logprobs(-1.005F);
    response_.add_probe_logprobs(-1.995F);
  }

  void ExpectRefusal(const absl::Status& status, const std::string& text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  v1::DescribeResponse worker_;
  ExpectedWorker expected_{"layout", "float32", 100, 8};
  PolicyUpdate update_;
  v1::LoadAdapterResponse response_;
};

TEST_F(WorkerHandshakeTest, AWorkerAsExpectedSaysHowMuchItTakes) {
  const auto in_flight = CheckDescription(worker_, "rollout", expected_);
  ASSERT_TRUE(in_flight.ok()) << in_flight.status();
  EXPECT_EQ(*in_flight, 4);
}

TEST_F(WorkerHandshakeTest, EveryDifferenceIsNamedWithBothValues) {
  expected_.precision = "bfloat16";
  expected_.vocab_size = 101;
  const auto status = CheckDescription(worker_, "teacher", expected_).status();
  ExpectRefusal(status, "service is rollout, this run needs teacher");
  ExpectRefusal(status, "precision is float32, this run needs bfloat16");
  ExpectRefusal(status, "vocab_size is 100, this run needs 101");
}

TEST_F(WorkerHandshakeTest, AWorkerOfAnotherTeacherIsNamed) {
  worker_.set_teacher("big");
  ExpectRefusal(CheckDescription(worker_, "rollout", expected_).status(),
                "it serves the teacher 'big', and this address is for the "
                "student's own model");
  expected_.teacher = "small";
  ExpectRefusal(CheckDescription(worker_, "rollout", expected_).status(),
                "it serves the teacher 'big', and this address is for the "
                "teacher 'small'; correct the addresses, or start it with "
                "--teacher small");
  expected_.teacher = "big";
  EXPECT_TRUE(CheckDescription(worker_, "rollout", expected_).ok());
  expected_.teacher_digest = "abc";
  worker_.set_teacher_digest("def");
  ExpectRefusal(CheckDescription(worker_, "rollout", expected_).status(),
                "teacher_digest is def, this run needs abc");
}

TEST_F(WorkerHandshakeTest, WhoRefusesAWorkerOfAnotherVersionSaysSo) {
  worker_.set_version("0.0.9-old");
  expected_.vocab_size = 101;
  ExpectRefusal(CheckDescription(worker_, "rollout", expected_).status(),
                "(it has version 0.0.9-old, this trainer " +
                    std::string(Version()) + ")");
}

TEST_F(WorkerHandshakeTest, AnotherVersionIsNamedAndTakenAllTheSame) {
  worker_.set_version(Version());
  EXPECT_EQ(DescribeSkew(worker_, "10.0.0.7:7001"), "");
  worker_.set_version("0.0.9-old");
  EXPECT_THAT(DescribeSkew(worker_, "10.0.0.7:7001"),
              testing::AllOf(testing::HasSubstr("10.0.0.7:7001"),
                             testing::HasSubstr("0.0.9-old"),
                             testing::HasSubstr(Version())));
  EXPECT_TRUE(CheckDescription(worker_, "rollout", expected_).ok());
}

TEST_F(WorkerHandshakeTest, AnotherModelIsRefused) {
  expected_.layout_digest = "other";
  ExpectRefusal(CheckDescription(worker_, "rollout", expected_).status(),
                "layout_digest");
}

TEST_F(WorkerHandshakeTest, AProbeWithinTheToleranceIsTaken) {
  const absl::Status status =
      CheckAcknowledgement(response_, WeightSet::kEma, update_);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(WorkerHandshakeTest, AnotherSetOfWeightsIsRefused) {
  response_.mutable_adapter()->clear_weights();
  ExpectRefusal(CheckAcknowledgement(response_, WeightSet::kEma, update_),
                "acknowledged another set of weights");
}

TEST_F(WorkerHandshakeTest, AProbeThatDiffersIsRefusedWithBothNumbers) {
  response_.set_probe_logprobs(1, -3.5F);
  const absl::Status status =
      CheckAcknowledgement(response_, WeightSet::kEma, update_);
  ExpectRefusal(status, "probe token 2 is -3.5, the trainer computes -2");
}

TEST_F(WorkerHandshakeTest, AProbeIsComparedAsAWhole) {
  // One of two tokens differs, so its square counts half.
  update_.probe_tolerance = {2.0F, 1.0F};
  response_.set_probe_logprobs(1, update_.probe_logprobs[1] - 1.4F);
  EXPECT_TRUE(CheckAcknowledgement(response_, WeightSet::kEma, update_).ok());
  response_.set_probe_logprobs(1, update_.probe_logprobs[1] - 1.5F);
  ExpectRefusal(CheckAcknowledgement(response_, WeightSet::kEma, update_),
                "root mean square over the probe 1.06");
}

TEST_F(WorkerHandshakeTest, OneTokenFarOffIsRefusedHoweverManyAgree) {
  update_.probe_tolerance = {1.0F, 10.0F};
  response_.set_probe_logprobs(1, update_.probe_logprobs[1] - 1.1F);
  ExpectRefusal(CheckAcknowledgement(response_, WeightSet::kEma, update_),
                "tolerance 1;");
}

TEST_F(WorkerHandshakeTest, AProbeThatIsNoNumberIsRefused) {
  response_.set_probe_logprobs(0, std::numeric_limits<float>::quiet_NaN());
  ExpectRefusal(CheckAcknowledgement(response_, WeightSet::kEma, update_),
                "probe token 1");
}

TEST_F(WorkerHandshakeTest, AShortProbeIsRefused) {
  response_.mutable_probe_logprobs()->RemoveLast();
  ExpectRefusal(CheckAcknowledgement(response_, WeightSet::kEma, update_),
                "has 1");
}

TEST_F(WorkerHandshakeTest, AnAcknowledgementOfOtherWeightsIsRefused) {
  response_.mutable_adapter()->set_digest("other");
  ExpectRefusal(CheckAcknowledgement(response_, WeightSet::kEma, update_),
                "was sent version 3 (digest) and serves version 3 (other)");
  response_.mutable_adapter()->set_digest("digest");
  response_.mutable_adapter()->set_policy_version(2);
  ExpectRefusal(CheckAcknowledgement(response_, WeightSet::kEma, update_),
                "version 2");
}

}  // namespace
}  // namespace dapd
