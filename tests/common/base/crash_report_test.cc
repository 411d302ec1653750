#include "common/base/crash_report.h"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/version.h"

namespace dapd {

// A stack shows this name because it is outside the anonymous namespace.
[[gnu::noinline]] void CrashHere(int signal_number) {
  std::raise(signal_number);
  // A call after raise() keeps this function on the stack (no tail call).
  std::signal(signal_number, SIG_DFL);
}

namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

// Recurses deeper than any stack.
int Recurse(volatile int* depth) {
  volatile char frame[4096] = {};
  *depth = *depth + 1;
  if (*depth < 0) return 0;
  return Recurse(depth) + frame[*depth % 4096];
}

TEST(CrashReportTest, ACrashNamesItsSignalAndItsStack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers report crashes themselves";
#endif
  const auto crash = [](int signal_number) {
    ReportCrashes();
    std::raise(signal_number);
  };
  const std::string introduction =
      absl::StrCat("dapd_base_test ", Version(), " ends by ");
  const std::string stack = "Its stack:\n(.*\n)*.*dapd_base_test\\(.*\\)\\[0x";
  EXPECT_EXIT(crash(SIGSEGV),
              KilledBySignal(SIGSEGV),
              introduction + "SIGSEGV. " + stack);
  EXPECT_EXIT(
      crash(SIGBUS), KilledBySignal(SIGBUS), introduction + "SIGBUS. " + stack);
  EXPECT_EXIT(
      crash(SIGFPE), KilledBySignal(SIGFPE), introduction + "SIGFPE. " + stack);
}

TEST(CrashReportTest, TheStackHasNames) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers report crashes themselves";
#endif
  const auto crash = [] {
    ReportCrashes();
    CrashHere(SIGILL);
  };
  EXPECT_EXIT(crash(),
              KilledBySignal(SIGILL),
              "\ndapd::CrashHere\\(\\) .*dapd_base_test\\(.*\\)\\[0x");
}

TEST(CrashReportTest, SoDoesAnExceptionThatNobodyCatches) {
  const auto throw_past_everything = []() noexcept {
    ReportCrashes();
    std::rethrow_exception(std::make_exception_ptr(std::exception()));
  };
  EXPECT_EXIT(throw_past_everything(),
              KilledBySignal(SIGABRT),
              "SIGABRT. Its stack:\n(.*\n)*.*libstdc.*\n(.*\n)*.*base_test");
}

TEST(CrashReportTest, SoDoesAStackThatOverflows) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers report crashes themselves";
#endif
  const auto overflow = [] {
    ReportCrashes();
    volatile int depth = 0;
    std::_Exit(Recurse(&depth));
  };
  EXPECT_EXIT(overflow(), KilledBySignal(SIGSEGV), "SIGSEGV. Its stack:\n");
}

TEST(CrashReportTest, WhatIsHandledAlreadyIsLeftAlone) {
  const auto handled = [] {
    std::signal(SIGSEGV, [](int) { std::_Exit(3); });
    ReportCrashes();
    std::raise(SIGSEGV);
  };
  EXPECT_EXIT(handled(), ExitedWithCode(3), "^$");
}

TEST(CrashReportTest, NobodyDiesOfAFileThatGrowsTooLarge) {
  const auto exceed = [] {
    ReportCrashes();
    std::raise(SIGXFSZ);
    std::_Exit(3);
  };
  EXPECT_EXIT(exceed(), ExitedWithCode(3), "^$");
}

TEST(CrashReportTest, ARequestToStopIsNoCrash) {
  const auto stop = [] {
    ReportCrashes();
    std::raise(SIGTERM);
  };
  EXPECT_EXIT(stop(), KilledBySignal(SIGTERM), "^$");
}

// std::thread throws the same error.
TEST(CrashReportTest, AThreadThatCannotBeStartedIsNoCrash) {
  const auto start = [](std::errc reason) noexcept {
    ReportCrashes();
    throw std::system_error(std::make_error_code(reason));
  };
  EXPECT_EXIT(start(std::errc::resource_unavailable_try_again),
              ExitedWithCode(3),
              "^dapd_base_test: too few threads: [^\n]*\n$");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EXIT(start(std::errc::not_a_directory),
              KilledBySignal(SIGABRT),
              "Not a directory");
#endif
}

}  // namespace
}  // namespace dapd
