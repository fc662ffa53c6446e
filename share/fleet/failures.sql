-- SPDX-License-Identifier: Apache-2.0
-- Ranks whose request for memory failed, the first one first, and the category of which the rank then held most beyond the
-- median of its peers at their peaks. Hosts are compared by their wall clocks.
WITH first_of AS (
  SELECT rank, host, pid, min(wall_ns) AS wall_ns FROM failures GROUP BY rank, host, pid
),
held AS (
  SELECT f.rank, f.host, f.pid, r.peers, f.wall_ns, f.iteration, f.requested_bytes, f.place, f.category, f.held_bytes
  FROM failures AS f JOIN first_of AS o ON o.rank = f.rank AND o.host = f.host AND o.pid = f.pid AND o.wall_ns = f.wall_ns
  JOIN ranks AS r ON r.rank = f.rank AND r.host = f.host AND r.pid = f.pid
),
categories AS (
  SELECT rank, host, pid, category, sum(bytes) AS bytes FROM parts GROUP BY rank, host, pid, category
),
filled AS (
  SELECT k.peers, k.category, coalesce(c.bytes, 0) AS bytes
  FROM (SELECT DISTINCT peers, category FROM held) AS k
  JOIN ranks AS r ON r.peers = k.peers
  LEFT JOIN categories AS c ON c.rank = r.rank AND c.host = r.host AND c.pid = r.pid AND c.category = k.category
),
usual AS (
  SELECT peers, category, CAST(round(median(bytes)) AS BIGINT) AS bytes FROM filled GROUP BY peers, category
),
ordered AS (
  SELECT h.*, h.held_bytes - u.bytes AS excess_bytes,
    row_number() OVER (PARTITION BY h.rank, h.host, h.pid ORDER BY h.held_bytes - u.bytes DESC, h.category) AS n
  FROM held AS h JOIN usual AS u ON u.peers = h.peers AND u.category = h.category
)
SELECT rank, host, wall_ns, iteration, requested_bytes, place, category, held_bytes, excess_bytes AS over_median_bytes
FROM ordered WHERE n = 1
ORDER BY wall_ns, rank, host, pid
LIMIT {top}
