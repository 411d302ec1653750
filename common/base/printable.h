// Makes foreign text safe for a terminal, a log and a message. Text from a
// file, another process or a client may contain any bytes: terminal commands,
// ill-formed UTF-8, a newline followed by a forged log line. Every message that
// leaves the process passes through here: log lines, the last message of a
// program, gRPC statuses and the error texts in protocol messages.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// Returns `text` as one line of well-formed UTF-8. Ill-formed bytes become
// \xff; control characters become \n, \t or \x1b (U+0080 to U+009F: \u0080),
// and so do characters that end a line or change the direction of reading
// (\u2028, \u202e). Everything else, backslashes included, stays as it is; the
// result is not meant to be converted back.
std::string Printable(absl::string_view text);

// Returns Printable's text of a message of several lines. All lines but the
// first begin with two spaces, so that none can be taken for a line of the log;
// a newline that two spaces do not follow is escaped.
std::string PrintableLines(absl::string_view text);

}  // namespace dapd
