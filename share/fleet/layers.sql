-- SPDX-License-Identifier: Apache-2.0
-- For the page: of each rank the layers that are farthest from the median of its peers. A rank without a layer has 0 bytes
-- of it.
WITH keys AS (
  SELECT DISTINCT r.peers, p.category, p.layer
  FROM parts AS p JOIN ranks AS r ON r.rank = p.rank AND r.host = p.host AND r.pid = p.pid WHERE p.layer <> ''
),
filled AS (
  SELECT r.rank, r.host, r.pid, k.peers, k.category, k.layer, coalesce(p.bytes, 0) AS bytes
  FROM keys AS k JOIN ranks AS r ON r.peers = k.peers
  LEFT JOIN parts AS p ON p.rank = r.rank AND p.host = r.host AND p.pid = r.pid AND p.category = k.category AND p.layer = k.layer
),
usual AS (
  SELECT peers, category, layer, CAST(round(median(bytes)) AS BIGINT) AS bytes FROM filled GROUP BY peers, category, layer
),
ordered AS (
  SELECT f.rank, f.host, f.pid, f.category, f.layer, f.bytes, u.bytes AS median_bytes,
    row_number() OVER (
      PARTITION BY f.rank, f.host, f.pid ORDER BY abs(f.bytes - u.bytes) DESC, f.bytes DESC, f.category, f.layer) AS place
  FROM filled AS f JOIN usual AS u ON u.peers = f.peers AND u.category = f.category AND u.layer = f.layer
)
SELECT rank, host, pid, category, layer, bytes, median_bytes FROM ordered WHERE place <= {top}
ORDER BY rank, host, pid, place
