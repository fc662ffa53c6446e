-- SPDX-License-Identifier: Apache-2.0
-- Peaks by host, device or an axis of the mesh (--by).
SELECT {by}, count(*) AS ranks, min(peak_bytes) AS lowest_bytes, CAST(round(median(peak_bytes)) AS BIGINT) AS median_bytes,
  max(peak_bytes) AS highest_bytes, max(peak_bytes) - min(peak_bytes) AS spread_bytes, -- Of equal peaks the lowest rank, in both engines.
  max_by(rank, peak_bytes * 1e0 - rank * 1e-3) AS highest_rank
FROM ranks
GROUP BY {by}
ORDER BY spread_bytes DESC, {by} NULLS LAST
LIMIT {top}
