-- Which node is slow?
-- Compares each node with other nodes of the same GPU model and power limit: the median time of the same work (label and team) in
-- windows without other processes on the GPU.  More than half of a node's GPUs must be slow.
-- Needs the same work on three nodes.  Shows the changes of the driver's clock and of the canary's clock.
-- since: 7d
WITH alone AS (
    SELECT * FROM windows
    WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND time_median_s > 0
      AND NOT list_has_any(coalesce(found, []), ['contention-process', 'contention-residual', 'contention-self', 'overlapping-window'])
), works AS (
    SELECT gpu_name, gpu_power_limit_w, team, label, hostname, gpu_uuid, median(time_median_s) AS time_s,
           median(sm_clock_mean_mhz) AS clock_mhz, median(canary_clock_mhz) AS canary_mhz, count(*) AS windows_count
    FROM alone GROUP BY ALL HAVING count(*) >= 3
), compared AS (
    SELECT *, time_s / median(time_s) OVER work - 1 AS slower, clock_mhz / median(clock_mhz) OVER work - 1 AS clock,
           canary_mhz / median(canary_mhz) OVER work - 1 AS canary,
           count(DISTINCT hostname) OVER (PARTITION BY gpu_name, gpu_power_limit_w, team, label) AS nodes
    FROM works WINDOW work AS (PARTITION BY gpu_name, gpu_power_limit_w, team, label)
), nodes AS (
    SELECT hostname, gpu_name, gpu_power_limit_w, quantile_disc(slower, 0.5) AS slower_ratio,
           median(clock) AS clock_change_ratio, median(canary) AS canary_change_ratio, count(DISTINCT label) AS works_count, sum(windows_count)::BIGINT AS windows_count
    FROM compared WHERE nodes >= 3 GROUP BY ALL
), spread AS (
    SELECT gpu_name, gpu_power_limit_w, 1.4826 * mad(slower_ratio) AS usual FROM nodes GROUP BY ALL
)
SELECT nodes.* FROM nodes JOIN spread USING (gpu_name, gpu_power_limit_w)
WHERE slower_ratio > greatest(0.015, 4 * usual)
ORDER BY slower_ratio DESC, hostname
