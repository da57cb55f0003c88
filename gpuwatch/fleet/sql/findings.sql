-- What was found most often, by node, rule and driver?
-- since: 7d
SELECT hostname, rule, gpu_driver_version, status, count(*) AS windows_count
FROM (SELECT hostname, gpu_driver_version, status, unnest(found) AS rule FROM windows
      WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until'))
GROUP BY ALL ORDER BY windows_count DESC, hostname, rule, gpu_driver_version, status
