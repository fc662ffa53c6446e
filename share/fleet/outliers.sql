-- SPDX-License-Identifier: Apache-2.0
-- Ranks whose peak is far from the median of their peers (ranks with the same mesh coordinates but dp): by more than
-- 4 MiB, 1 % and six times the median distance. For each: the layer and category with most of the difference, and the
-- first iteration in which the rank differs by half of it.
WITH medians AS (
  SELECT peers, count(*) AS ranks, median(peak_bytes) AS bytes FROM ranks GROUP BY peers
),
distances AS (
  SELECT r.peers, median(abs(r.peak_bytes - m.bytes)) AS bytes
  FROM ranks AS r JOIN medians AS m ON m.peers = r.peers GROUP BY r.peers
),
far AS (
  SELECT r.rank, r.host, r.pid, r.peers, r.mesh, r.peak_bytes, CAST(round(m.bytes) AS BIGINT) AS median_bytes,
    r.peak_bytes - CAST(round(m.bytes) AS BIGINT) AS difference_bytes
  FROM ranks AS r JOIN medians AS m ON m.peers = r.peers JOIN distances AS d ON d.peers = r.peers
  WHERE m.ranks >= 3 AND abs(r.peak_bytes - m.bytes) > greatest(4194304e0, m.bytes * 1e-2, d.bytes * 6e0)
),
-- A rank without a layer has 0 bytes of it.
keys AS (
  SELECT DISTINCT r.peers, p.category, p.layer
  FROM parts AS p JOIN ranks AS r ON r.rank = p.rank AND r.host = p.host AND r.pid = p.pid
  WHERE r.peers IN (SELECT peers FROM far)
),
filled AS (
  SELECT k.peers, k.category, k.layer, coalesce(p.bytes, 0) AS bytes
  FROM keys AS k JOIN ranks AS r ON r.peers = k.peers
  LEFT JOIN parts AS p ON p.rank = r.rank AND p.host = r.host AND p.pid = r.pid AND p.category = k.category AND p.layer = k.layer
),
usual AS (
  SELECT peers, category, layer, CAST(round(median(bytes)) AS BIGINT) AS bytes FROM filled GROUP BY peers, category, layer
),
differences AS (
  SELECT f.rank, f.host, f.pid, u.category, u.layer, coalesce(p.bytes, 0) - u.bytes AS bytes,
    row_number() OVER (
      PARTITION BY f.rank, f.host, f.pid ORDER BY abs(coalesce(p.bytes, 0) - u.bytes) DESC, u.category, u.layer) AS place
  FROM far AS f JOIN usual AS u ON u.peers = f.peers
  LEFT JOIN parts AS p ON p.rank = f.rank AND p.host = f.host AND p.pid = f.pid AND p.category = u.category AND p.layer = u.layer
),
usual_iterations AS (
  SELECT r.peers, i.iteration, median(i.peak_bytes) AS bytes
  FROM iterations AS i JOIN ranks AS r ON r.rank = i.rank AND r.host = i.host AND r.pid = i.pid
  WHERE r.peers IN (SELECT peers FROM far) GROUP BY r.peers, i.iteration
),
since AS (
  SELECT f.rank, f.host, f.pid, min(i.iteration) AS iteration
  FROM far AS f JOIN iterations AS i ON i.rank = f.rank AND i.host = f.host AND i.pid = f.pid
  JOIN usual_iterations AS u ON u.peers = f.peers AND u.iteration = i.iteration
  WHERE (i.peak_bytes - u.bytes) * sign(f.difference_bytes) > abs(f.difference_bytes) / 2
  GROUP BY f.rank, f.host, f.pid
)
SELECT f.rank, f.host, f.mesh, f.peak_bytes, f.difference_bytes, d.layer, d.category, d.bytes AS layer_difference_bytes,
  s.iteration AS since_iteration
FROM far AS f
LEFT JOIN differences AS d ON d.rank = f.rank AND d.host = f.host AND d.pid = f.pid AND d.place = 1
LEFT JOIN since AS s ON s.rank = f.rank AND s.host = f.host AND s.pid = f.pid
ORDER BY abs(f.difference_bytes) DESC, f.rank, f.host, f.pid
LIMIT {top}
