#include "common/rpc/server/call_authorizer.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/server/authorization.h"

namespace dapd {
namespace {

// A caller that is refused all day must not fill the disk.
constexpr absl::Duration kLogInterval = absl::Seconds(1);

}  // namespace

CallAuthorizer::CallAuthorizer(
    std::shared_ptr<const Security> security,
    Protection protection,
    std::function<void(const std::string& reason)> on_refused)
    : security_(std::move(security)),
      protection_(protection),
      on_refused_(std::move(on_refused)) {}

absl::Status CallAuthorizer::Authorize(const CallFacts& facts) {
  const auto roles = FindRoles(facts);
  if (!roles.ok()) return Refuse("unauthenticated", roles.status());
  const MethodRule* rule = FindRule(facts.method);
  // A name that is not in the table is not repeated to the caller.
  if (rule == nullptr) {
    return Refuse("unknown_method",
                  absl::UnimplementedError("there is no such method"));
  }
  if (!rule->roles.Intersects(*roles)) {
    return Refuse(
        "forbidden",
        absl::PermissionDeniedError(absl::StrCat(rule->method,
                                                 " may be called by ",
                                                 rule->roles.ToString(),
                                                 "; the caller is ",
                                                 roles->ToString())));
  }
  return absl::OkStatus();
}

absl::StatusOr<RoleSet> CallAuthorizer::FindRoles(
    const CallFacts& facts) const {
  RoleSet roles;
  if (protection_ == Protection::kTls) {
    roles = RolesOfUris(facts.certificate_uris);
  } else if (!security_->accepts_tokens()) {
    roles = protection_ == Protection::kLoopback ? RoleSet::All()
                                                 : RoleSet{Role::kTrainer};
  }
  if (security_->accepts_tokens() && !facts.authorization.empty()) {
    if (facts.authorization.size() > 1) {
      return absl::UnauthenticatedError("more than one authorization header");
    }
    const RoleSet granted =
        security_->RolesOfToken(ParseBearer(facts.authorization.front()));
    if (granted.empty()) {
      return absl::UnauthenticatedError("the token is not accepted");
    }
    roles.Add(granted);
  }
  if (roles.empty()) {
    return absl::UnauthenticatedError(
        protection_ == Protection::kTls
            ? "the certificate names no role of this system (a URI "
              "spiffe://dapd/<role>), and no token grants one"
            : "a token is needed: authorization: Bearer <token>");
  }
  return roles;
}

absl::Status CallAuthorizer::Refuse(const std::string& reason,
                                    absl::Status status) {
  if (on_refused_) on_refused_(reason);
  MutexLock lock(&mutex_);
  const absl::Time now = SteadyNow();
  if (now - last_logged_ < kLogInterval) {
    ++not_logged_;
    return status;
  }
  LogWarning(absl::StrCat("refused a call (",
                          reason,
                          "): ",
                          std::string(status.message()),
                          not_logged_ == 0 ? "" : "; before it, ",
                          not_logged_ == 0 ? "" : absl::StrCat(not_logged_),
                          not_logged_ == 0 ? "" : " more"));
  last_logged_ = now;
  not_logged_ = 0;
  return status;
}

}  // namespace dapd
