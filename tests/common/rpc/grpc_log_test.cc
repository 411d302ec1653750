#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/log.h"

namespace dapd {
namespace {

TEST(GrpcLogTest, WhatGrpcSaysIsAMessageOfOurLog) {
  SetLog({.format = LogFormat::kJson, .source = {.service = "teacher"}});
  // A server lowers the verbosity like this.
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  LogWhatGrpcSays();
  testing::internal::CaptureStderr();
  gpr_log("src/core/lib/x.cc", 12, GPR_LOG_SEVERITY_ERROR, "no \"%s\"", "way");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::EndsWith(R"("level":"warning","service":"teacher",)"
                                R"("message":"gRPC: x.cc:12: no \"way\""})"
                                "\n"));
  gpr_set_log_function(nullptr);
  SetLog({});
}

}  // namespace
}  // namespace dapd
