// The command line of a program: its options, flags and subcommands, with help
// texts. CLI11 does the work; only command_line.cc includes it, because its
// headers cost more to compile than most files that declare an option.
//
//   CommandLine line("Adds numbers.");
//   line.AddOption("--count", count, "how many").Required().Positive();
//   if (const auto code = line.Parse(argc, argv)) return *code;
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/enum_names.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace dapd {

// An option that was declared: a handle, valid as long as its CommandLine.
class CommandOption {
 public:
  // The option must be given, and not as an empty text: the text is a file or
  // an address, for example, and a message about an empty one would name
  // nothing.
  CommandOption& Required();
  // The option may be left out, but an empty text is refused. Otherwise a
  // script with an unset variable would leave it out unnoticed.
  CommandOption& NotEmpty();
  // The value is a path: "~" stands for the home folder, and paths that
  // user_path.h refuses are refused.
  CommandOption& Path();
  CommandOption& Positive();
  CommandOption& NonNegative();
  CommandOption& Range(int min, int max);
  CommandOption& Range(double min, double max);
  CommandOption& OneOf(std::vector<std::string> values);
  // The option is accepted only together with `other`.
  CommandOption& Needs(const CommandOption& other);
  // Without the option, the environment variable `variable` provides the value.
  CommandOption& FromEnvironment(const std::string& variable);
  CommandOption& ShowDefault();
  // If the option is given several times, the list takes all values.
  CommandOption& TakeAll();
  // The help text does not show the option.
  CommandOption& Hide();

 private:
  friend class Command;
  explicit CommandOption(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

// A program or one of its subcommands: a handle, valid as long as its
// CommandLine.
class Command {
 public:
  // The function that a subcommand runs once the command line is parsed. The
  // exit code of the program is ExitCodeOf its Status.
  using Action = std::function<absl::Status()>;

  // `name` is "--long", or "name" for a positional argument. `value` must
  // outlive Parse(); its value beforehand is the default. A number that the
  // type of `value` cannot hold, an infinite number and NaN are refused.
  CommandOption AddOption(const std::string& name,
                          std::string& value,
                          const std::string& help = "");
  // Adds an option whose value is an enum, given by its name.
  CommandOption AddOption(const std::string& name,
                          EnumVariable value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          std::vector<std::string>& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          int& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          int64_t& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          uint64_t& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          double& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          std::optional<bool>& value,
                          const std::string& help = "");
  CommandOption AddFlag(const std::string& name,
                        bool& value,
                        const std::string& help = "");

  // All arguments after the command, options included, go to `rest`: they are
  // the command line of another program. `rest` must outlive Parse(). At least
  // one word is required, and the first word is not an option.
  void TakeRest(std::vector<std::string>& rest);

  Command AddSubcommand(const std::string& name, const std::string& help);
  void RequireSubcommand();
  // CommandLine::Run calls `action` if the user chose this command.
  void Does(Action action);

 protected:
  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}
  CLI::App* app_;
  Action* chosen_;
};

class CommandLine : public Command {
 public:
  // With an empty `name` the program is called as it was started.
  explicit CommandLine(const std::string& description,
                       const std::string& name = "");
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // The flag prints the text that `version` returns and ends the program.
  void AddVersionFlag(std::function<std::string()> version);

  // Parses the arguments into the values. Returns an exit code if the program
  // has to end: 0 after help or version were printed, ExitCode::kUsage after an
  // error was printed on stderr.
  std::optional<int> Parse(int argc, char** argv);

  // Runs the action of the chosen subcommand. Call it after Parse().
  absl::Status Run() const;

 private:
  struct State;
  explicit CommandLine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dapd
