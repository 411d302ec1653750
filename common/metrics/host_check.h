// Decides which names a request may give this machine in its Host header.
//
// A web page can let its own name resolve to a loopback or private address (DNS
// rebinding), and then read the pages of this process with its visitor's
// browser. Such a request still carries the page's name. So the server answers
// only to names that no foreign page can have.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// Returns true for an IP address, localhost, a name without a dot (as in
// Compose), this machine's own name, the name of a Kubernetes service (*.svc,
// *.svc.cluster.local) and the names in `allowed`, ignoring case. `host` is the
// header's value, with or without a port.
bool IsTrustedHost(absl::string_view host,
                   const std::vector<std::string>& allowed);

}  // namespace dapd
