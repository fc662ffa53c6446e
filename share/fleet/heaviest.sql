-- SPDX-License-Identifier: Apache-2.0
-- The ranks with the highest peaks, beside the median of their peers, and the category that has most of each peak.
WITH medians AS (
  SELECT peers, CAST(round(median(peak_bytes)) AS BIGINT) AS bytes FROM ranks GROUP BY peers
),
categories AS (
  SELECT rank, host, pid, category, CAST(sum(bytes) AS BIGINT) AS bytes,
    row_number() OVER (PARTITION BY rank, host, pid ORDER BY sum(bytes) DESC, category) AS place
  FROM parts GROUP BY rank, host, pid, category
)
SELECT r.rank, r.host, r.device, r.mesh, r.peak_bytes, r.peak_bytes - m.bytes AS over_median_bytes, r.total_bytes,
  r.peak_iteration, c.category, c.bytes AS category_bytes
FROM ranks AS r
JOIN medians AS m ON m.peers = r.peers
LEFT JOIN categories AS c ON c.rank = r.rank AND c.host = r.host AND c.pid = r.pid AND c.place = 1
ORDER BY r.peak_bytes DESC, r.rank, r.host, r.pid
LIMIT {top}
