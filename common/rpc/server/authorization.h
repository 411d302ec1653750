// Who may call what: one table for every method of every service, health and
// reflection too. What is not in it is refused.
//
// A test compares the table with the services' descriptors: a new method
// without a row fails it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/security/role.h"

namespace dapd {

struct MethodRule {
  std::string
      method;     // as in HTTP/2's :path, "/dapd.v1.RolloutService/Generate"
  RoleSet roles;  // any of them may call
};

const std::vector<MethodRule>& AuthorizationTable();

// The row of `method`; nullptr if there is none.
const MethodRule* FindRule(absl::string_view method);

}  // namespace dapd
