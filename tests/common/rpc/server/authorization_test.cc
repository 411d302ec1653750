#include "common/rpc/server/authorization.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

#include "dapd/v1/rank.pb.h"
#include "dapd/v1/rollout.pb.h"
#include "dapd/v1/teacher.pb.h"
#include "dapd/v1/trainer.pb.h"

namespace dapd {
namespace {

using ::testing::UnorderedElementsAreArray;

// Health and reflection belong to gRPC; their descriptors are not installed.
bool IsOurs(const std::string& method) {
  return !absl::StartsWith(method, "/grpc.");
}

// Returns every method of every service in proto/dapd/v1.
std::vector<std::string> DescribedMethods() {
  // The linker keeps the descriptors of messages that are named here.
  EXPECT_NE(v1::RankHello::descriptor(), nullptr);
  EXPECT_NE(v1::GenerateRequest::descriptor(), nullptr);
  EXPECT_NE(v1::ScoreRequest::descriptor(), nullptr);
  EXPECT_NE(v1::GetStatusRequest::descriptor(), nullptr);
  std::vector<std::string> methods;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::string(DAPD_SOURCE_DIR) + "/proto/dapd/v1")) {
    const std::string name =
        absl::StrCat("dapd/v1/", entry.path().filename().string());
    const auto* file =
        google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
            name);
    EXPECT_NE(file, nullptr) << "name a message of " << name << " above";
    if (file == nullptr) continue;
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.push_back(absl::StrCat("/",
                                       file->service(s)->full_name(),
                                       "/",
                                       file->service(s)->method(m)->name()));
      }
    }
  }
  return methods;
}

TEST(AuthorizationTest, TheTableHasARowForEveryMethodAndNoOther) {
  std::vector<std::string> rows;
  for (const MethodRule& rule : AuthorizationTable()) {
    if (IsOurs(rule.method)) rows.push_back(rule.method);
  }
  const std::vector<std::string> methods = DescribedMethods();
  EXPECT_GE(methods.size(), 8u);
  EXPECT_THAT(rows, UnorderedElementsAreArray(methods))
      << "a new method needs a row in common/rpc/server/authorization.cc";
}

TEST(AuthorizationTest, NoRowOccursTwiceAndEachNamesARole) {
  std::set<std::string> seen;
  for (const MethodRule& rule : AuthorizationTable()) {
    EXPECT_TRUE(seen.insert(rule.method).second) << rule.method;
    EXPECT_FALSE(rule.roles.empty()) << rule.method;
    EXPECT_TRUE(rule.roles.Contains(Role::kAdmin)) << rule.method;
  }
}

TEST(AuthorizationTest, OnlyTheTrainerAndTheAdminDrive) {
  for (const char* method : {"/dapd.v1.RankService/Join",
                             "/dapd.v1.RolloutService/LoadAdapter",
                             "/dapd.v1.RolloutService/Generate",
                             "/dapd.v1.TeacherService/LoadAdapter",
                             "/dapd.v1.TeacherService/Score"}) {
    EXPECT_EQ(FindRule(method)->roles, (RoleSet{Role::kTrainer, Role::kAdmin}));
  }
}

TEST(AuthorizationTest, ReflectionIsTheAdminsAlone) {
  int rows = 0;
  for (const MethodRule& rule : AuthorizationTable()) {
    if (!absl::StrContains(rule.method, "reflection")) continue;
    EXPECT_EQ(rule.roles, RoleSet{Role::kAdmin});
    ++rows;
  }
  EXPECT_EQ(rows, 1);
}

TEST(AuthorizationTest, OnlyExactNamesAreFound) {
  EXPECT_NE(FindRule("/dapd.v1.TrainerService/GetStatus"), nullptr);
  for (const char* method : {"",
                             "/",
                             "dapd.v1.TrainerService/GetStatus",
                             "/dapd.v1.TrainerService/getstatus",
                             "/dapd.v1.TrainerService/GetStatus/",
                             "//dapd.v1.TrainerService/GetStatus",
                             "/dapd.v1.TrainerService/GetStatus?x",
                             "/dapd.v1.TrainerService/%47etStatus",
                             "/dapd.v1.TrainerService/Stop"}) {
    EXPECT_EQ(FindRule(method), nullptr) << method;
  }
}

}  // namespace
}  // namespace dapd
