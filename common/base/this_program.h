// The file that this process was started by, and the streams that it was given.
#pragma once

#include <string>

namespace dapd {

// Its absolute path: what to call for another such process, and what its
// neighbours lie beside. Told by where this code is mapped from, since
// /proc/self/exe is the loader's where a launcher names one. Of a released
// program it is the launcher (LauncherOf). Empty if /proc does not say.
std::string ThisProgram();

// bin/NAME for a `program` libexec/NAME, if that is there: it gives the program
// the libraries of its release (deploy/release/launch.sh). Any other `program`
// as it is.
std::string LauncherOf(const std::string& program);

// Calls this process what its file is called, for ps and top, which otherwise
// show the name of a loader that was started in its place.
void NameThisProcess();

// Opens /dev/null in the place of standard input, output and error where they
// are closed. The next file or connection would otherwise be one of them, and
// be written into by whoever logs or prints. To be called before anything is
// opened.
void OpenStandardStreams();

}  // namespace dapd
