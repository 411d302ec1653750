#include "common/rpc/server/authorization.h"

#include <algorithm>

namespace dapd {
namespace {

constexpr RoleSet kDrive = {Role::kTrainer, Role::kAdmin};
constexpr RoleSet kLook = {Role::kViewer, Role::kTrainer, Role::kAdmin};

}  // namespace

const std::vector<MethodRule>& AuthorizationTable() {
  static const auto& table = *new std::vector<MethodRule>{
      {"/dapd.v1.RolloutService/Describe", kLook},
      {"/dapd.v1.RolloutService/LoadAdapter", kDrive},
      {"/dapd.v1.RolloutService/Generate", kDrive},
      {"/dapd.v1.TeacherService/Describe", kLook},
      {"/dapd.v1.TeacherService/LoadAdapter", kDrive},
      {"/dapd.v1.TeacherService/Score", kDrive},
      {"/dapd.v1.TrainerService/GetStatus", kLook},
      {"/dapd.v1.RankService/Join", kDrive},
      // A worker's container asks for the health of its own worker.
      {"/grpc.health.v1.Health/Check", RoleSet::All()},
      {"/grpc.health.v1.Health/Watch", RoleSet::All()},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
       {Role::kAdmin}},
  };
  return table;
}

const MethodRule* FindRule(absl::string_view method) {
  const std::vector<MethodRule>& table = AuthorizationTable();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const MethodRule& rule) {
        return rule.method == method;
      });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace dapd
