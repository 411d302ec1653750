// Decides about each call before any message of it is read: who is it (the
// roles of the certificate and of the token), and does the table
// (authorization.h) let one of these roles call the method?
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
  // `on_refused` gets "unauthenticated", "forbidden" or "unknown_method". May
  // be empty; called from gRPC's threads.
  CallAuthorizer(std::shared_ptr<const Security> security,
                 Protection protection,
                 std::function<void(const std::string& reason)> on_refused);

  // OK, or what the caller is told, which never holds a token:
  //   UNAUTHENTICATED    no role: no certificate or token that grants one, or a
  //                      token that is not accepted
  //   PERMISSION_DENIED  roles, but not one that may call this method
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
