-- SPDX-License-Identifier: Apache-2.0
-- Versions and settings that are not the same on all ranks: the rarest value of each first.
WITH facts AS (
  SELECT rank, host, name, value FROM settings
  UNION ALL SELECT rank, host, 'vramscope', version FROM ranks
  UNION ALL SELECT rank, host, 'GPU', device_name FROM ranks
),
counted AS (
  SELECT name, value, count(*) AS ranks, min(rank) AS first_rank, min(host) AS first_host FROM facts GROUP BY name, value
),
totals AS (
  SELECT name, count(*) AS different, CAST(sum(ranks) AS BIGINT) AS ranks FROM counted GROUP BY name
),
whole AS (
  SELECT count(*) AS ranks FROM ranks
)
SELECT c.name, c.value, c.ranks, w.ranks - t.ranks AS ranks_without, c.first_rank, c.first_host
FROM counted AS c JOIN totals AS t ON t.name = c.name CROSS JOIN whole AS w
WHERE t.different > 1 OR t.ranks < w.ranks
ORDER BY c.name, c.ranks, c.value
LIMIT {top}
