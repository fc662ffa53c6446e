// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vramscope::format {

// An empty file in the live directory whose name is the id of the recording: the directory's own
// name may come again. Shells that record into one directory have an id each.
inline constexpr char kSessionExtension[] = ".session";

}  // namespace vramscope::format
