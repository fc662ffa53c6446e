// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vramscope::format {

// A symbolic link in the live directory, to the id of the recording: the directory's name may come
// again.
inline constexpr char kSessionLink[] = "session";

}  // namespace vramscope::format
