// Paths that a user writes in a configuration or on a command line. A shell has
// already replaced ~ and $NAME in its arguments, but not in a file, in quotes
// or after "--set key=".
#pragma once

#include <string>

namespace dapd {

// Returns the home folder of this user: HOME or, without that variable (as in a
// service), the entry in the user database; empty if neither exists.
std::string HomeFolder();

// Replaces a "~" at the beginning of `path`, alone or before a slash, by the
// home folder. Returns an empty text if the path is good; otherwise what is
// wrong with it, and the path is unchanged. Refused are "~name", which is not
// looked up, and $NAME or ${NAME}, which are not replaced; "./~name" names a
// file that is really called so.
std::string ExpandUserPath(std::string* path);

}  // namespace dapd
