// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <string>

namespace vramscope::base {
namespace {

const std::string kId = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
const std::string kUid = "8b6d9a52-3c1e-4f7a-9d2b-6e0c5a4f1b3d";
const std::string kUnitUid = "8b6d9a52_3c1e_4f7a_9d2b_6e0c5a4f1b3d";

struct Case {
  const char* what;
  std::string text;
  std::string container;
  std::string pod;
};

TEST(CgroupTest, ContainersAndPodsOfTheUsualEngines) {
  const Case cases[] = {
      {"no container", "0::/user.slice/user-1000.slice/session-3.scope\n", "", ""},
      {"a namespace of its own", "0::/\n", "", ""},
      {"nothing", "", "", ""},
      {"docker, version 1",
       "12:memory:/docker/" + kId + "\n11:cpu,cpuacct:/docker/" + kId + "\n0::/system.slice\n", kId,
       ""},
      {"docker, version 2", "0::/system.slice/docker-" + kId + ".scope\n", kId, ""},
      {"docker in docker",
       "1:name=systemd:/docker/" + std::string(64, 'a') + "/docker/" + kId + "\n", kId, ""},
      {"podman", "0::/machine.slice/libpod-" + kId + ".scope\n", kId, ""},
      {"containerd, version 1", "5:devices:/kubepods/burstable/pod" + kUid + "/" + kId + "\n", kId,
       kUid},
      {"containerd, guaranteed", "5:devices:/kubepods/pod" + kUid + "/" + kId + "\n", kId, kUid},
      {"containerd, version 2",
       "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + kUnitUid +
           ".slice/cri-containerd-" + kId + ".scope\n",
       kId, kUnitUid},
      {"containerd behind colons",
       "0::/system.slice/containerd.service/kubepods-pod" + kUnitUid +
           ".slice:cri-containerd:" + kId + "\n",
       kId, kUnitUid},
      {"cri-o", "0::/kubepods.slice/kubepods-pod" + kUnitUid + ".slice/crio-" + kId + ".scope\n",
       kId, kUnitUid},
      {"without a newline", "0::/docker/" + kId, kId, ""},
      {"an id that is cut off", "0::/docker/" + kId.substr(1) + "\n", "", ""},
      {"a uid that is none", "0::/kubepods/pod" + std::string(36, 'x') + "/" + kId + "\n", kId, ""},
  };
  for (const Case& one : cases) {
    const CgroupIds found = FindCgroupIds(one.text);
    EXPECT_EQ(found.container, one.container) << one.what;
    EXPECT_EQ(found.pod, one.pod) << one.what;
  }
}

}  // namespace
}  // namespace vramscope::base
