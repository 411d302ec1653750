#include "common/tensor/torch_bridge.h"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

int checks = 0;
bool device_works = true;

absl::Status PlayDevice() {
  ++checks;
  return device_works ? absl::OkStatus()
                      : absl::InternalError("an illegal access");
}

class TorchBridgeTest : public testing::Test {
 protected:
  TorchBridgeTest() {
    checks = 0;
    device_works = true;
    SetDeviceCheck(PlayDevice);
  }
  ~TorchBridgeTest() override { SetDeviceCheck(nullptr); }

  static absl::Status Throw(const std::string& text) {
    return CatchTorch([&]() -> absl::Status { TORCH_CHECK(false, text); });
  }
};

TEST_F(TorchBridgeTest, AnErrorOfADeviceThatWorksIsInternal) {
  EXPECT_TRUE(absl::IsInternal(Throw("odd shapes")));
  EXPECT_EQ(checks, 1);
  EXPECT_TRUE(CatchTorch([] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(checks, 1) << "nobody waits for a device without need";
}

TEST_F(TorchBridgeTest, ALostDeviceMeansStartMeAgain) {
  device_works = false;
  const absl::Status status = Throw("a product failed");
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kRestart);
  for (const std::string part : {"an illegal access", "a product failed"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
  }
}

// The destructor of a buffer that a copy still reads may throw like this.
TEST_F(TorchBridgeTest, AnErrorBehindAnErrorOfALostDeviceMeansTheSame) {
  struct Throws {
    ~Throws() { std::rethrow_exception(std::make_exception_ptr(1)); }
  };
  const auto fail_twice = [] {
    const absl::Status unreached = CatchTorch([]() -> absl::Status {
      const Throws buffer;
      TORCH_CHECK(false, "a product failed");
    });
    std::_Exit(unreached.ok() ? 1 : 2);
  };
  EXPECT_EXIT(fail_twice(), testing::KilledBySignal(SIGABRT), "");
  device_works = false;
  EXPECT_EXIT(fail_twice(),
              testing::ExitedWithCode(static_cast<int>(ExitCode::kRestart)),
              "an illegal access.*restarted");
}

TEST_F(TorchBridgeTest, ALaunchMayWantMemory) {
  EXPECT_NO_THROW(CheckLaunch(0, "a norm"));
  EXPECT_THROW(CheckLaunch(2, "a norm"), c10::OutOfMemoryError);
  const auto launch = [](int error) -> absl::Status {
    CheckLaunch(error, "a norm");
    return absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsResourceExhausted(CatchTorch([&] { return launch(2); })));
  const absl::Status other = CatchTorch([&] { return launch(9); });
  EXPECT_TRUE(absl::IsInternal(other));
  EXPECT_EQ(other.message(), "a norm did not start: CUDA error 9");
}

TEST_F(TorchBridgeTest, WantOfMemoryIsNotTheDevicesDeath) {
  for (const std::string text :
       {"CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"}) {
    EXPECT_TRUE(absl::IsResourceExhausted(Throw(text))) << text;
  }
  EXPECT_EQ(checks, 0);
}

}  // namespace
}  // namespace dapd
