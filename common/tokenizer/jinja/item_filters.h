// Filters that go through the items of a list, each of which is tested, changed
// or compared with the others: select, reject, selectattr, rejectattr, map,
// sort and dictsort.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

using Filter =
    std::function<absl::StatusOr<Value>(const Value&, const Arguments&)>;

const std::map<std::string, Filter>& ItemFilters();

// The first five above: they take what the test or filter that they name
// takes, and jinja2 makes a generator of them.
bool IsLazyFilter(const std::string& name);

}  // namespace dapd::jinja
