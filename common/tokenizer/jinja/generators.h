// Where a template may use what jinja2 makes a generator of: the filters
// select, reject, selectattr, rejectattr, map and items. Here they give lists.
// A generator is true even if nothing comes out of it, has no length and no
// index, and is empty once it has been gone through; so it may only stand where
// that makes no difference.
#pragma once

#include "absl/status/status.h"

#include "common/tokenizer/jinja/ast.h"

namespace dapd::jinja {

// INVALID_ARGUMENT, with the line, if the expression or a part of it is a
// generator anywhere but in front of the filters list, join, first and sort and
// the first five above, after "in", or, where it is `iterated`, as what a loop
// goes through.
absl::Status CheckGenerators(const Expression& expression, bool iterated);

}  // namespace dapd::jinja
