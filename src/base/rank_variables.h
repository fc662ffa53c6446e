// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vramscope::base {

// Where a process finds its place in a distributed program; the first that is set counts. torchrun,
// which may have been started by the others, Open MPI, MPICH and Intel MPI, MVAPICH, PMIx, Slurm.
inline constexpr const char* kRankVariables[] = {
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};

}  // namespace vramscope::base
