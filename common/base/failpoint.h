// Failpoints: named places at which a test makes the process die, stall or
// fail, on both sides of every durable transition.
//
//   DAPD_FAILPOINT("checkpoint.before_rename");
//   RETURN_IF_ERROR(DAPD_FAILPOINT_STATUS("checkpoint.sync"));
//
// Only builds with tests (DAPD_TESTS) contain failpoints. The environment
// variable DAPD_FAILPOINTS activates them:
//   name=kill          SIGKILL to itself, on the first hit
//   name=kill@3        on the third hit
//   name=stop@2        SIGSTOP (a hang that keeps its connections)
//   name=sleep:250     250 ms at every hit; with @n only at the n-th
//   name=hold:PATH     for as long as there is a file PATH; with @n likewise
//   name=error         what a full disk gives (FileError of ENOSPC) from
//                      DAPD_FAILPOINT_STATUS; with :m only the first m hits
// Several entries are separated by ';'. An entry that cannot be parsed ends the
// process with code 2, because a test without an active failpoint would prove
// nothing.
#pragma once

#include "absl/status/status.h"

#include "common/base/build_options.h"

namespace dapd {

// Thread-safe.
absl::Status HitFailpoint(const char* name);

}  // namespace dapd

#ifdef DAPD_FAILPOINTS
#define DAPD_FAILPOINT(name) ::dapd::HitFailpoint(name).IgnoreError()
#define DAPD_FAILPOINT_STATUS(name) ::dapd::HitFailpoint(name)
#else
#define DAPD_FAILPOINT(name) static_cast<void>(0)
#define DAPD_FAILPOINT_STATUS(name) ::absl::OkStatus()
#endif
