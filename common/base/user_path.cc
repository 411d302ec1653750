#include "common/base/user_path.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

bool BeginsName(char letter) {
  return absl::ascii_isalpha(static_cast<unsigned char>(letter)) ||
         letter == '_' || letter == '{';
}

// Returns "$HOME" or "${HOME}" if the path contains it; otherwise an empty
// text.
std::string FirstVariable(const std::string& path) {
  for (size_t i = path.find('$'); i != std::string::npos;
       i = path.find('$', i + 1)) {
    if (i + 1 == path.size() || !BeginsName(path[i + 1])) continue;
    size_t end = i + 2;
    while (end < path.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(path[end])) ||
            path[end] == '_')) {
      ++end;
    }
    if (path[i + 1] == '{' && end < path.size()) ++end;
    return path.substr(i, end - i);
  }
  return "";
}

}  // namespace

std::string HomeFolder() {
  if (const char* home = std::getenv("HOME"); home != nullptr) return home;
  const struct passwd* user = ::getpwuid(::getuid());
  return user == nullptr ? "" : user->pw_dir;
}

std::string ExpandUserPath(std::string* path) {
  if (const std::string name = FirstVariable(*path); !name.empty()) {
    return absl::StrCat("'",
                        *path,
                        "' contains ",
                        name,
                        ", which is not replaced in a path: write the path out "
                        "or, on a command line, let the shell replace it");
  }
  if (!path->starts_with("~")) return "";
  const std::string first = path->substr(0, path->find('/'));
  if (first != "~") {
    return absl::StrCat("'",
                        *path,
                        "' begins with ",
                        first,
                        "; only ~ and ~/ stand for a home folder, this user's: "
                        "write the path out (./",
                        first,
                        " is a file of that name)");
  }
  const std::string home = HomeFolder();
  if (home.empty()) {
    return absl::StrCat(
        "'",
        *path,
        "' begins with ~, and this user has no home folder (HOME is not set): "
        "write the path out");
  }
  path->replace(0, 1, home);
  return "";
}

}  // namespace dapd
