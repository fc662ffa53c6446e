-- SPDX-License-Identifier: Apache-2.0
-- Ten questions to a recording, in SQL, each with its answer for ten steps of GPT-2 on an H100:
--     vramscope.read("examples/traces/gpt2.vram").duckdb().sql(QUESTION)
-- docs/TABLES.md explains the tables. `words` names the numbers of category, part and phase.

-- 1. When was each device's peak?
SELECT d.name, p.bytes, p.estimated_bytes, p.time_ns
FROM peaks p JOIN devices d ON d.id = p.device;
--   name | bytes | estimated_bytes | time_ns
--   NVIDIA H100 80GB HBM3 | 12860588032 | 650969088 | 56937944711
--   host | 4 | 0 | 55618078325

-- 2. What was the program's GPU memory at the peak for? (Without free memory and the driver's: question 8.)
SELECT w.word AS category, sum(a.bytes - a.rounding_bytes) AS bytes, count(*) AS allocations
FROM allocations a
JOIN sites s ON s.id = a.site
JOIN words w ON w."column" = 'category' AND w.number = s.category
JOIN accounts c ON c.id = s.account
JOIN devices d ON d.id = c.device AND d.kind = 0
JOIN peaks p ON p.device = d.id
WHERE a.begin_ns <= p.time_ns AND p.time_ns < a.end_ns AND s.backing = 0 AND s.unbacked = 0
GROUP BY ALL ORDER BY bytes DESC;
--   category | bytes | allocations
--   activation | 6536901632 | 172
--   temporary | 3296723456 | 3
--   optimizer state | 995807232 | 296
--   parameter | 497903616 | 148
--   workspace | 202639360 | 9
--   input | 131072 | 2

-- 3. Which modules had most activations then?
SELECT s.module, s.module_class, sum(a.bytes - a.rounding_bytes) AS bytes
FROM allocations a
JOIN sites s ON s.id = a.site
JOIN words w ON w."column" = 'category' AND w.number = s.category AND w.word = 'activation'
JOIN accounts c ON c.id = s.account
JOIN peaks p ON p.device = c.device
WHERE a.begin_ns <= p.time_ns AND p.time_ns < a.end_ns
GROUP BY ALL ORDER BY bytes DESC, s.module LIMIT 5;
--   module | module_class | bytes
--   GPT | GPT | 1673540608
--   blocks.0 | Block | 150994944
--   blocks.1 | Block | 150994944
--   blocks.10 | Block | 150994944
--   blocks.11 | Block | 150994944

-- 4. Which lines of your own code allocated most?
SELECT parse_filename(f.file) AS file, f.line, f."function", sum(s.allocated_bytes) AS bytes,
       sum(s.allocated_count) AS allocations
FROM sites s
JOIN stacks k ON k.id = s.place
JOIN frames f ON f.id = k.frame AND f.library = 0
WHERE s.backing = 0
GROUP BY ALL ORDER BY bytes DESC LIMIT 5;
--   file | line | function | bytes | allocations
--   train_gpt2.py | 40 | backward of attend | 15196815360 | 840
--   train_gpt2.py | 75 | Block.forward | 15099494400 | 240
--   train_gpt2.py | 75 | backward of Block.forward | 12079595520 | 120
--   train_gpt2.py | 40 | attend | 3067084800 | 240
--   train_gpt2.py | 74 | Block.forward | 3019898880 | 120

-- 5. How long do allocations live?
SELECT CASE WHEN end_ns - alloc_ns < 1e6 THEN 'below 1 ms'
            WHEN end_ns - alloc_ns < 1e8 THEN 'below 100 ms' ELSE 'longer' END AS lived,
       count(*) AS allocations, sum(a.bytes) AS bytes
FROM allocations a JOIN sites s ON s.id = a.site
WHERE s.backing = 0
GROUP BY ALL ORDER BY allocations DESC;
--   lived | allocations | bytes
--   below 1 ms | 4251 | 171240748032
--   below 100 ms | 3283 | 67480107520
--   longer | 791 | 7060315652

-- 6. How much does each iteration allocate?
SELECT i.number, count(*) AS allocations, sum(a.bytes) AS bytes
FROM allocations a
JOIN sites s ON s.id = a.site AND s.backing = 0
JOIN accounts c ON c.id = s.account
JOIN iterations i ON i.process = c.process AND i.begin_ns < a.alloc_ns AND a.alloc_ns <= i.end_ns
WHERE a.alloc_ns = a.begin_ns
GROUP BY ALL ORDER BY i.number;
--   number | allocations | bytes
--   0 | 1090 | 25592628736
--   1 | 788 | 24392740356
--   2 | 787 | 24392740352
--   3 | 787 | 24392740352
--   4 | 787 | 24392740352
--   5 | 787 | 24392740352
--   6 | 787 | 24392740352
--   7 | 787 | 24392740352
--   8 | 787 | 24392740352
--   9 | 787 | 24392740352

-- 7. What does rounding cost?
SELECT coalesce(nullif(s.allocator, ''), s.owner) AS asked, sum(a.rounding_bytes) AS rounding_bytes,
       round(100 * sum(a.rounding_bytes) / sum(a.bytes), 3) AS percent
FROM allocations a JOIN sites s ON s.id = a.site
WHERE s.backing = 0
GROUP BY ALL ORDER BY rounding_bytes DESC;
--   asked | rounding_bytes | percent
--   PyTorch | 8519680 | 0.003
--   cuBLAS | 0 | 0.0

-- 8. What did the driver hold for itself at the end?
SELECT w.word AS part, s.api, s.trigger, sum(t.bytes) AS bytes
FROM steps t
JOIN counters n ON n.id = t.counter AND n.segment = 0
JOIN sites s ON s.id = n.site
JOIN words w ON w."column" = 'part' AND w.number = s.part
JOIN accounts c ON c.id = s.account
JOIN processes r ON r.id = c.process AND t.time_ns <= r.exit_ns
GROUP BY ALL HAVING sum(t.bytes) > 0 ORDER BY bytes DESC;
--   part | api | trigger | bytes
--   context | primary context | cuInit + primary context | 543162368
--   several calls at once | cuLaunchKernel | cuLibraryLoadData + cuLaunchKernel | 98566144

-- 9. How well does the ledger explain NVML's figure?
SELECT d.name, count(*) AS samples, max(abs(x.used_bytes::BIGINT - x.ledger_bytes)) AS worst_bytes
FROM samples x JOIN devices d ON d.id = x.device
WHERE x.counted = 1 AND x.low_bytes = 0 AND x.high_bytes = 0
GROUP BY ALL;
--   name | samples | worst_bytes
--   NVIDIA H100 80GB HBM3 | 87 | 0

-- 10. Which parameters have most memory at the peak, with gradient and state?
SELECT s.parameter, sum(a.bytes - a.rounding_bytes) AS bytes, list(DISTINCT w.word ORDER BY w.word) AS what
FROM allocations a
JOIN sites s ON s.id = a.site AND s.parameter <> ''
JOIN words w ON w."column" = 'category' AND w.number = s.category
JOIN accounts c ON c.id = s.account
JOIN peaks p ON p.device = c.device
WHERE a.begin_ns <= p.time_ns AND p.time_ns < a.end_ns
GROUP BY ALL ORDER BY bytes DESC, s.parameter LIMIT 3;
--   parameter | bytes | what
--   tokens.weight | 309067776 | ['optimizer state']
--   tokens.weight = head.weight | 154533888 | ['parameter']
--   blocks.0.contract.weight | 28311552 | ['optimizer state', 'parameter']
