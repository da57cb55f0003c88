-- Which GPU has degraded since last month?
-- Compares the last seven days of each GPU with its windows of four to nine weeks ago, for the same work at the same power limit.
-- Divides by the median change of the model's GPUs, which removes a common change, for example after a new driver.
-- since: 63d
WITH periods AS (
    SELECT *, CASE WHEN begun_utc >= getvariable('until') - INTERVAL 7 DAY THEN 'now'
                   WHEN begun_utc < getvariable('until') - INTERVAL 28 DAY THEN 'before' END AS period
    FROM windows
    WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND time_median_s > 0
      AND NOT list_has_any(coalesce(found, []), ['contention-process', 'contention-residual', 'contention-self', 'overlapping-window'])
), works AS (
    SELECT gpu_uuid, gpu_name, gpu_power_limit_w, team, label, arg_max(hostname, begun_utc) AS hostname,
           median(time_median_s) FILTER (period = 'now') / median(time_median_s) FILTER (period = 'before') AS times,
           median(sm_clock_mean_mhz) FILTER (period = 'now') / median(sm_clock_mean_mhz) FILTER (period = 'before') - 1 AS clock,
           median(temperature_mean_c) FILTER (period = 'now') - median(temperature_mean_c) FILTER (period = 'before') AS warmer,
           count(*) FILTER (period = 'now') AS now_count, count(*) FILTER (period = 'before') AS before_count
    FROM periods GROUP BY ALL
), moved AS (
    SELECT *, times / median(times) OVER work - 1 AS slower, count(*) OVER work AS gpus
    FROM works WHERE now_count >= 3 AND before_count >= 3
    WINDOW work AS (PARTITION BY gpu_name, gpu_power_limit_w, team, label)
), gpus AS (
    SELECT hostname, gpu_uuid, gpu_name, gpu_power_limit_w, median(slower) AS slower_ratio, median(clock) AS clock_change_ratio,
           median(warmer) AS warmer_c, sum(now_count)::BIGINT AS now_count, sum(before_count)::BIGINT AS before_count
    FROM moved WHERE gpus >= 3 GROUP BY ALL
), spread AS (
    SELECT gpu_name, gpu_power_limit_w, 1.4826 * mad(slower_ratio) AS usual FROM gpus GROUP BY ALL
)
SELECT gpus.* FROM gpus JOIN spread USING (gpu_name, gpu_power_limit_w)
WHERE slower_ratio > greatest(0.015, 4 * usual)
ORDER BY slower_ratio DESC, hostname, gpu_uuid
