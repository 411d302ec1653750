// Decides who may call which method: one table for every method of every
// service, including health and reflection. A method that is not in the table
// is refused.
//
// A test compares the table with the services' descriptors and fails for a new
// method without a row.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/security/role.h"

namespace dapd {

struct MethodRule {
  std::string
      method;     // as in HTTP/2's :path, "/dapd.v1.RolloutService/Generate"
  RoleSet roles;  // a caller needs one of them
};

const std::vector<MethodRule>& AuthorizationTable();

// Returns the row of `method`; nullptr if there is none.
const MethodRule* FindRule(absl::string_view method);

}  // namespace dapd
