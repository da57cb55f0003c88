-- Which node has gone silent?
-- Lists nodes whose latest window began before --since.  A node without benchmarks looks the same as one that exports nothing;
-- the metric gpuwatch_export_last_success_time_seconds tells them apart.
-- since: 3d
SELECT hostname, max(begun_utc)::TIMESTAMP AS last_utc, count(*) AS windows_count FROM windows
WHERE begun_utc < getvariable('until') GROUP BY hostname HAVING max(begun_utc) < getvariable('since')
ORDER BY last_utc, hostname
