// Lists names that somebody might send to reach a foreign file.
#pragma once

#include <string>
#include <vector>

namespace dapd {

inline std::vector<std::string> HostileNames() {
  using namespace std::string_literals;  // the names may contain NUL
  return {
      // These names are empty, or mean this folder or the parent folder.
      ""s,
      "."s,
      ".."s,
      "..."s,
      "../"s,
      "./"s,
      "../secret"s,
      "../../secret"s,
      "a/../../secret"s,
      "a/.."s,
      "./../secret"s,
      ".././secret"s,
      "....//secret"s,
      "..//secret"s,
      "a//../secret"s,
      "../a/../../secret"s,
      // These paths lead to other places.
      "/"s,
      "//"s,
      "/secret"s,
      "//secret"s,
      "/etc/passwd"s,
      "/proc/self/environ"s,
      "/proc/self/root/etc/passwd"s,
      "/dev/stdin"s,
      "/dev/fd/0"s,
      "sub/secret"s,
      "secret/"s,
      "file:///etc/passwd"s,
      "~"s,
      "~/secret"s,
      "~root/secret"s,
      "$HOME/secret"s,
      "${HOME}"s,
      // These paths belong to other systems.
      "..\\secret"s,
      "\\secret"s,
      "C:\\secret"s,
      "C:secret"s,
      "\\\\host\\share"s,
      "secret:stream"s,
      "a\\..\\..\\secret"s,
      // These paths are disguised by escapes, overlong and lookalike encodings.
      "%2e%2e%2fsecret"s,
      "..%2fsecret"s,
      "%2e%2e/secret"s,
      "..%5csecret"s,
      "%252e%252e%252fsecret"s,
      "..;/secret"s,
      "..\xc0\xafsecret"s,
      "\xc0\xae\xc0\xae/secret"s,
      "\xe2\x80\xa4\xe2\x80\xa4/secret"s,
      "\xe2\x80\xa5/secret"s,
      "..\xef\xbc\x8fsecret"s,
      "..\xe2\x88\x95secret"s,
      "\xef\xbc\x8e\xef\xbc\x8e/secret"s,
      "\xff\xfe"s,
      "\xe2\x80\xae"
      "terces"s,
      // These names contain NUL, line breaks or white space.
      "secret\0.safetensors"s,
      "\0"s,
      "../secret\0"s,
      "a\0/../secret"s,
      "secret\n"s,
      "a\nb"s,
      "a\rb"s,
      "\t.."s,
      " .."s,
      ".. "s,
      "a b"s,
      "a\x7f"s,
      "a\x1b[2J"s,
      // These names have a meaning for shells and tools.
      "-rf"s,
      "--output=x"s,
      "$(id)"s,
      "`id`"s,
      "a;b"s,
      "a|b"s,
      "a>b"s,
      "a&b"s,
      "*"s,
      "?"s,
      "[a]"s,
      "{a,b}"s,
      "'a'"s,
      "\"a\""s,
      "!a"s,
      "#a"s,
      // These names are hidden or too long.
      ".hidden"s,
      ".ssh"s,
      ".git/config"s,
      std::string(129, 'a'),
      std::string(4096, 'a'),
      std::string(2000, '.'),
  };
}

}  // namespace dapd
