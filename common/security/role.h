// Defines the roles that certificates and tokens grant to a peer. The roles
// decide which calls are allowed (common/rpc/server/authorization.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

enum class Role {
  kViewer,   // reads health, status and metrics
  kRollout,  // a rollout worker
  kTeacher,  // a teacher worker
  kTrainer,  // drives the workers
  kAdmin,    // everything, including reflection
};
inline constexpr int kNumRoles = 5;

// Returns "viewer", "rollout", ...
const char* RoleName(Role role);
std::optional<Role> ParseRole(absl::string_view name);

class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= Bit(role);
  }
  static constexpr RoleSet All() {
    RoleSet all;
    all.bits_ = (1U << kNumRoles) - 1;
    return all;
  }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool Contains(Role role) const { return (bits_ & Bit(role)) != 0; }
  constexpr bool Intersects(RoleSet other) const {
    return (bits_ & other.bits_) != 0;
  }
  constexpr void Add(RoleSet other) { bits_ |= other.bits_; }
  friend constexpr bool operator==(RoleSet a, RoleSet b) = default;

  // Returns a text such as "trainer, viewer", or "no role".
  std::string ToString() const;

 private:
  static constexpr uint32_t Bit(Role role) {
    return 1U << static_cast<uint32_t>(role);
  }
  uint32_t bits_ = 0;
};

// Returns the roles that a certificate's URI names grant: spiffe://dapd/<role>,
// with nothing before or after it. Other URIs grant none.
RoleSet RolesOfUris(const std::vector<std::string>& uris);

}  // namespace dapd
