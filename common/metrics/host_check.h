// Which names a request may call this machine by, in its Host header.
//
// A web page can let its own name resolve to a loopback or private address (DNS
// rebinding) and then read, with its visitor's browser, what is served there.
// Such a request still carries the page's name. So only names are answered that
// no foreign page can have.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// True for an IP address, localhost, a name without a dot (as in Compose), this
// machine's own name, a Kubernetes service's name (*.svc, *.svc.cluster.local)
// and the names in `allowed`, which ignore case. `host`: the header's value,
// with or without a port.
bool IsTrustedHost(absl::string_view host,
                   const std::vector<std::string>& allowed);

}  // namespace dapd
