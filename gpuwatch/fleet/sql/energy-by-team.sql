-- How much energy did windows use, by team?
-- Sums over outermost windows and their GPUs.  Idle energy is at most the energy times the idle share of time.
-- since: 30d
SELECT team, sum(energy_j) / 3.6e6 AS energy_kwh, sum(energy_j * (1 - least(busy_ratio, 1))) / 3.6e6 AS at_most_idle_kwh,
       sum(length_s) / 3600 AS gpu_hours, count(*) AS windows_count
FROM windows WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND parent IS NULL
  AND energy_j IS NOT NULL
GROUP BY team ORDER BY energy_kwh DESC, team
