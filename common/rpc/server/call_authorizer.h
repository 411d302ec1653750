// Decides about each call before any message of it is read: which roles do the
// certificate and the token of the caller grant, and may one of these roles
// call the method (authorization.h)?
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/security/security.h"

namespace dapd {

struct CallFacts {
  absl::string_view method;                      // "/package.Service/Method"
  std::vector<absl::string_view> authorization;  // headers of that name
  std::vector<std::string> certificate_uris;     // of the verified certificate
};

// Thread-safe.
class CallAuthorizer {
 public:
  // `on_refused` receives "unauthenticated", "forbidden" or "unknown_method".
  // May be empty; gRPC's threads call it.
  CallAuthorizer(std::shared_ptr<const Security> security,
                 Protection protection,
                 std::function<void(const std::string& reason)> on_refused);

  // Returns OK, or the status for the caller, which never contains a token:
  //   UNAUTHENTICATED    no role: no certificate or token grants one, or the
  //                      token is not accepted
  //   PERMISSION_DENIED  no role of the caller may call this method
  //   UNIMPLEMENTED      the table has no such method
  absl::Status Authorize(const CallFacts& facts);

 private:
  absl::StatusOr<RoleSet> FindRoles(const CallFacts& facts) const;
  absl::Status Refuse(const std::string& reason, absl::Status status);

  const std::shared_ptr<const Security> security_;
  const Protection protection_;
  const std::function<void(const std::string& reason)> on_refused_;
  Mutex mutex_;
  absl::Time last_logged_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t not_logged_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dapd
