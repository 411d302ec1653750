// Declares the files of this folder, of which pages with charts consist, as
// text. embed_files.cmake generates chart_files.cc from them.
#pragma once

namespace dapd {

extern const char kStyleCss[];
// The scripts must be in one scope, in this order.
extern const char kDomJs[];       // elements
extern const char kScaleJs[];     // scales, ticks, numbers
extern const char kChartJs[];     // charts over steps
extern const char kControlsJs[];  // controls that change all charts of a page

}  // namespace dapd
