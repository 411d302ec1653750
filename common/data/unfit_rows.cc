#include "common/data/unfit_rows.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"

namespace dapd {
namespace {

constexpr size_t kMaxNamedRows = 10;

}  // namespace

void UnfitRows::Add(bool fits, const std::string& description) {
  fits_.push_back(fits);
  if (!fits && num_unfit_++ < kMaxNamedRows) {
    absl::StrAppend(&named_, "\n  ", description);
  }
}

absl::Status UnfitRows::Settle(const std::string& path,
                               const std::string& problem,
                               const std::string& advice,
                               const std::string& on_bad_row,
                               Dataset* data) const {
  if (num_unfit_ == 0) return absl::OkStatus();
  const std::string named =
      absl::StrCat(named_, num_unfit_ > kMaxNamedRows ? "\n  ..." : "");
  const std::string what = absl::StrCat(
      path, ": ", num_unfit_, " of ", fits_.size(), " rows ", problem);
  const bool skips = on_bad_row == "skip";
  if (!skips || num_unfit_ == fits_.size()) {
    return DataError(
        absl::StrCat(what,
                     ", ",
                     advice,
                     skips ? "" : ", or skip them with data.on_bad_row: skip",
                     named));
  }
  LogWarning(absl::StrCat(what, "; left out (data.on_bad_row: skip)", named));
  std::vector<Problem> fitting;
  for (size_t i = 0; i < fits_.size(); ++i) {
    if (fits_[i]) fitting.push_back(std::move(data->problems[i]));
  }
  data->problems = std::move(fitting);
  data->skipped_rows += static_cast<int64_t>(num_unfit_);
  data->digest = DigestOf(data->problems);
  return absl::OkStatus();
}

}  // namespace dapd
