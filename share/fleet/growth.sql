-- SPDX-License-Identifier: Apache-2.0
-- Ranks whose allocated memory grows from iteration to iteration: the slope of a line through the iterations' ends. The
-- first two iterations are left out, because they make gradients and optimizer state. Memory that came in one step does
-- not grow: the mean must rise from each quarter of the iterations to the next.
WITH quarters AS (
  SELECT rank, host, pid, quarter, avg(end_allocated_bytes) AS bytes
  FROM (
    SELECT rank, host, pid, end_allocated_bytes, ntile(4) OVER (PARTITION BY rank, host, pid ORDER BY iteration) AS quarter
    FROM iterations WHERE iteration >= 2) AS numbered
  GROUP BY rank, host, pid, quarter
),
rises AS (
  SELECT rank, host, pid, bytes - lag(bytes) OVER (PARTITION BY rank, host, pid ORDER BY quarter) AS bytes FROM quarters
),
least AS (
  SELECT rank, host, pid, min(bytes) AS bytes, sum(bytes) AS sum_bytes FROM rises WHERE bytes IS NOT NULL GROUP BY rank, host, pid
),
slopes AS (
  SELECT rank, host, pid, count(*) AS iterations, regr_slope(end_allocated_bytes, iteration) AS slope,
    min_by(end_allocated_bytes, iteration) AS first_bytes, max_by(end_allocated_bytes, iteration) AS last_bytes
  FROM iterations WHERE iteration >= 2 GROUP BY rank, host, pid
  HAVING count(*) >= 4 AND max(iteration) > min(iteration) AND max(end_allocated_bytes) > min(end_allocated_bytes)
    AND corr(end_allocated_bytes, iteration) > 8e-1
),
-- `growing` names the ranks of a host only if each has a device of its own.
named AS (
  SELECT r.rank, r.host, r.pid, g.place, g.layer, g.category,
    row_number() OVER (PARTITION BY r.rank, r.host, r.pid ORDER BY g.bytes_per_iteration DESC, g.place, g.layer) AS n
  FROM ranks AS r JOIN growing AS g ON g.host = r.host AND g.device = r.device AND (g.rank = r.rank OR g.rank = -1)
)
SELECT s.rank, s.host, CAST(round(s.slope) AS BIGINT) AS per_iteration_bytes, s.first_bytes, s.last_bytes, s.iterations,
  CASE WHEN r.total_bytes > 0 THEN CAST(floor((r.total_bytes - r.peak_bytes) / nullif(s.slope, 0)) AS BIGINT) END AS iterations_left,
  n.place, n.layer, n.category
FROM slopes AS s
JOIN ranks AS r ON r.rank = s.rank AND r.host = s.host AND r.pid = s.pid
JOIN least AS l ON l.rank = s.rank AND l.host = s.host AND l.pid = s.pid AND l.bytes > l.sum_bytes / 10
LEFT JOIN named AS n ON n.rank = s.rank AND n.host = s.host AND n.pid = s.pid AND n.n = 1
WHERE s.slope > 0 AND s.last_bytes - s.first_bytes > greatest(1048576e0, r.peak_bytes * 1e-3)
ORDER BY s.slope DESC, s.rank, s.host, s.pid
LIMIT {top}
