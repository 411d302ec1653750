// A path as a user writes it, in a configuration or on a command line. Where a
// shell stands between the two it has replaced ~ and $NAME already; in a file,
// in quotes and behind "--set key=" nobody has.
#pragma once

#include <string>

namespace dapd {

// This user's home folder: HOME or, without that, as in a service, what the
// user database says; empty if neither knows one.
std::string HomeFolder();

// Replaces a "~" that stands alone or before a slash at the beginning of `path`
// by the home folder. Empty if the path is good then; else what is wrong with
// it, and the path is as it was: "~name", which is not looked up, and $NAME or
// ${NAME}, which are not replaced. Of such names "./~name" means the file.
std::string ExpandUserPath(std::string* path);

}  // namespace dapd
