#include "common/security/role.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace dapd {
namespace {

constexpr char kUriPrefix[] = "spiffe://dapd/";
constexpr const char* kNames[kNumRoles] = {
    "viewer", "rollout", "teacher", "trainer", "admin"};

}  // namespace

const char* RoleName(Role role) { return kNames[static_cast<int>(role)]; }

std::optional<Role> ParseRole(absl::string_view name) {
  for (int i = 0; i < kNumRoles; ++i) {
    if (name == kNames[i]) return static_cast<Role>(i);
  }
  return std::nullopt;
}

std::string RoleSet::ToString() const {
  std::string text;
  for (int i = 0; i < kNumRoles; ++i) {
    if (!Contains(static_cast<Role>(i))) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", kNames[i]);
  }
  return text.empty() ? "no role" : text;
}

RoleSet RolesOfUris(const std::vector<std::string>& uris) {
  RoleSet roles;
  for (const std::string& uri : uris) {
    absl::string_view rest = uri;
    if (!absl::ConsumePrefix(&rest, kUriPrefix)) continue;
    if (const auto role = ParseRole(rest)) roles.Add({*role});
  }
  return roles;
}

}  // namespace dapd
