-- Which GPU is slower than the other GPUs of its node?
-- Compares the median time of the same work (label and team) between the GPUs of one node that share model and power limit,
-- in windows without other processes on the GPU.
-- since: 7d
WITH works AS (
    SELECT hostname, gpu_name, gpu_power_limit_w, team, label, gpu_uuid, median(time_median_s) AS time_s,
           median(sm_clock_mean_mhz) AS clock_mhz, median(temperature_mean_c) AS temperature_c, count(*) AS windows_count
    FROM windows
    WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND time_median_s > 0
      AND NOT list_has_any(coalesce(found, []), ['contention-process', 'contention-residual', 'contention-self', 'overlapping-window'])
    GROUP BY ALL HAVING count(*) >= 3
), compared AS (
    SELECT *, time_s / quantile_disc(time_s, 0.5) OVER work - 1 AS slower, clock_mhz / max(clock_mhz) OVER work - 1 AS clock,
           temperature_c - min(temperature_c) OVER work AS warmer, count(*) OVER work AS gpus
    FROM works WINDOW work AS (PARTITION BY hostname, gpu_name, gpu_power_limit_w, team, label)
)
SELECT hostname, gpu_uuid, gpu_name, median(slower) AS slower_ratio, median(clock) AS clock_change_ratio,
       median(warmer) AS warmer_c, count(*) AS works_count, sum(windows_count)::BIGINT AS windows_count
FROM compared WHERE gpus >= 2 GROUP BY ALL HAVING median(slower) > 0.015
ORDER BY slower_ratio DESC, hostname, gpu_uuid
