// Foreign text made fit for a terminal, a log and a message. What a file, a
// peer or a client sent may hold any bytes: terminal commands, ill-formed
// UTF-8, a newline followed by a forged log line. Whatever leaves the
// process as a message goes through here: the log, a program's last words, gRPC
// statuses and the error texts in messages.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// `text` as one line of well-formed UTF-8: ill-formed bytes become \xff,
// control characters \n, \t or \x1b (U+0080 to U+009F: \u0080), and so do
// characters that end a line or turn the direction of reading (\u2028, \u202e).
// Everything else, backslashes included, stays as it is: this is not meant to
// be read back.
std::string Printable(absl::string_view text);

// The same for a message that may have further lines of its own. Those begin
// with two spaces, so that none can be taken for a line of the log; a newline
// followed by anything else is escaped.
std::string PrintableLines(absl::string_view text);

}  // namespace dapd
