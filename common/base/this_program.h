// The executable of this process, and its standard streams.
#pragma once

#include <string>

namespace dapd {

// Returns the absolute path of the program, with which another such process can
// be started, and beside which its other files lie. It is found by the mapping
// of this code, since /proc/self/exe is the dynamic loader if a launcher
// started that. For a program of a release it is the launcher (LauncherOf).
// Returns an empty text if /proc does not show the path.
std::string ThisProgram();

// Returns bin/NAME for a `program` libexec/NAME if that file exists: the
// launcher, which gives the program the libraries of its release
// (deploy/release/launch.sh). Returns any other `program` unchanged.
std::string LauncherOf(const std::string& program);

// Sets the name of this process, which ps and top show, to the name of its
// file. Otherwise they show the name of a dynamic loader that was started in
// its place.
void NameThisProcess();

// Opens /dev/null in the place of closed standard streams. Otherwise the next
// file or connection would get such a number, and log lines would be written
// into it. Call it before anything is opened.
void OpenStandardStreams();

}  // namespace dapd
